// A list that holds still while it is read: under the pointer, with the focus inside, or scrolled into.
// Rows keep their places and show what is newest of them; rows that are new wait for the reader.
import { html, useEffect, useRef, useState } from "../html.js";
import { count } from "../format.js";

// `items` as they are now; `name` identifies the list: another one is shown at once.
// → {ref, shown, isGone(item), update}: `update` is null, or {fresh, show} when the order has changed.
export function useHeld(items, keyOf, name) {
  const ref = useRef(null);
  const kept = useRef({ name: null, keys: [], seen: new Map() });
  const reading = useRef({ isPointed: false });
  const [, redraw] = useState(0);
  const draw = () => redraw((number) => number + 1);
  useReader(ref, reading, draw);

  const now = new Map(items.map((item) => [keyOf(item), item]));
  const keys = [...now.keys()];
  const isSame = kept.current.name === name && kept.current.keys.length > 0;
  const isHeld = isSame && isRead(ref.current, reading.current);
  if (!isHeld) kept.current = { name, keys, seen: new Map() };
  const { keys: order, seen } = kept.current;
  for (const key of order) if (now.has(key)) seen.set(key, now.get(key));
  const isChanged = keys.length !== order.length || keys.some((key, index) => key !== order[index]);
  const known = new Set(order);
  return {
    ref,
    shown: order.map((key) => seen.get(key)),
    isGone: (item) => !now.has(keyOf(item)),
    update: isChanged ? { fresh: keys.filter((key) => !known.has(key)).length, show } : null,
  };

  function show() {
    kept.current = { name: null, keys: [], seen: new Map() };
    draw();
  }
}

function isRead(element, { isPointed }) {
  return isPointed || hasFocus(element) || isScrolledInto(element);
}

function hasFocus(element) {
  return element != null && element.contains(document.activeElement);
}

function isScrolledInto(element) {
  return element != null && element.getBoundingClientRect().top < 0 && element.getBoundingClientRect().bottom > 0;
}

// Watches the pointer, the focus and the scrolling, and draws again when reading has ended.
function useReader(ref, reading, draw) {
  useEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const end = () => {
      if (!isRead(element, reading.current)) draw();
    };
    let wasScrolled = false;
    const handlers = {
      pointerenter: () => {
        reading.current.isPointed = true;
      },
      pointerleave: () => {
        reading.current.isPointed = false;
        end();
      },
      focusout: end,
    };
    const scroll = () => {
      const isScrolled = isScrolledInto(element);
      if (wasScrolled && !isScrolled) draw();
      wasScrolled = isScrolled;
    };
    for (const [name, handler] of Object.entries(handlers)) element.addEventListener(name, handler);
    addEventListener("scroll", scroll, { passive: true });
    return () => {
      for (const [name, handler] of Object.entries(handlers)) element.removeEventListener(name, handler);
      removeEventListener("scroll", scroll);
    };
  }, []);
}

// Lies over the list's edge, so that nothing moves when it appears.
export function UpdateButton({ update }) {
  if (!update) return null;
  const label = update.fresh ? `Show ${count(update.fresh)} new` : "Show the new order";
  return html`<div class="held-update">
    <button class="button" data-kind="main" data-size="small" type="button" onClick=${update.show}>${label}</button>
  </div>`;
}
