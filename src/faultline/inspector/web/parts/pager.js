// Pagination: with the server's cursors, or within a list that was fetched whole.
import { html, useEffect, useState } from "../html.js";
import { count } from "../format.js";

// The cursors of the pages up to the current one; the first page's is null. Returns to page 1 when `key` changes.
export function useCursors(key) {
  const [visited, setVisited] = useState([null]);
  useEffect(() => setVisited([null]), [key]);
  return {
    cursor: visited.at(-1),
    number: visited.length,
    forward: (next) => setVisited([...visited, next]),
    back: () => setVisited(visited.slice(0, -1)),
  };
}

export function Pager({ cursors, next, shown, what }) {
  if (cursors.number === 1 && !next) return null;
  return html`<nav class="pager" aria-label=${`Pages of ${what}`}>
    <span aria-live="polite">Page ${count(cursors.number)}, ${count(shown)} ${what}</span>
    <button class="button" type="button" disabled=${cursors.number === 1} onClick=${cursors.back}>Previous</button>
    <button class="button" type="button" disabled=${!next} onClick=${() => cursors.forward(next)}>Next</button>
  </nav>`;
}

const PAGE_SIZE = 100;

// For lists that were fetched whole: shows PAGE_SIZE rows at a time.
export function useLocalPages(rows, key) {
  const [number, setNumber] = useState(0);
  useEffect(() => setNumber(0), [key]);
  const last = Math.max(0, Math.ceil(rows.length / PAGE_SIZE) - 1);
  const current = Math.min(number, last);
  const from = current * PAGE_SIZE;
  return { rows: rows.slice(from, from + PAGE_SIZE), total: rows.length, from, current, last, setNumber };
}

export function LocalPager({ pages, what }) {
  if (pages.last === 0) return null;
  const { current, from, rows, total, setNumber } = pages;
  return html`<nav class="pager" aria-label=${`Pages of ${what}`}>
    <span aria-live="polite">${count(from + 1)}–${count(from + rows.length)} of ${count(total)} ${what}</span>
    <button class="button" type="button" disabled=${current === 0} onClick=${() => setNumber(current - 1)}>Previous</button>
    <button class="button" type="button" disabled=${current === pages.last} onClick=${() => setNumber(current + 1)}>Next</button>
  </nav>`;
}
