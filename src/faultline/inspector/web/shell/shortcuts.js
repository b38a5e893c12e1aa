// Keyboard shortcuts on every page, except while the user types in a field.
import { useEffect } from "../html.js";
import { PAGES } from "../pages/pages.js";
import { go } from "../router.js";
import { SEARCH_ID } from "./topbar.js";

const SEQUENCE_MS = 1500;

export function useShortcuts({ onHelp }) {
  useEffect(() => {
    let prefixPressedAt = 0;
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
        prefixPressedAt = Date.now();
      } else if (Date.now() - prefixPressedAt < SEQUENCE_MS) {
        prefixPressedAt = 0;
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
