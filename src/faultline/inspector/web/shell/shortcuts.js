// Keys that work on every page, unless somebody is typing.
import { html, useEffect } from "../html.js";
import { PAGES } from "../pages/pages.js";
import { go } from "../router.js";
import { SEARCH_ID } from "./topbar.js";

const SEQUENCE_MS = 1500;

export function useShortcuts({ onHelp }) {
  useEffect(() => {
    let leaderAt = 0;
    function press(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById(SEARCH_ID)?.focus();
      } else if (event.key === "?") {
        event.preventDefault();
        onHelp();
      } else if (event.key === "g") {
        leaderAt = Date.now();
      } else if (Date.now() - leaderAt < SEQUENCE_MS) {
        leaderAt = 0;
        const page = PAGES.find(({ key }) => key === event.key);
        if (page) go(page.name);
      }
    }
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function isTyping(element) {
  return element.closest?.("input, select, textarea, [contenteditable]") != null;
}

export function ShortcutList() {
  return html`<dl class="shortcuts">
    <dt><kbd>/</kbd></dt><dd>find a job</dd>
    <dt><kbd>?</kbd></dt><dd>this help</dd>
    <dt><kbd>Esc</kbd></dt><dd>close what is open</dd>
    ${PAGES.map(
      ({ key, title }) => html`<dt key=${`${key}-keys`}><kbd>g</kbd> <kbd>${key}</kbd></dt>
        <dd key=${key}>${title}</dd>`,
    )}
  </dl>`;
}
