// The browser's modal dialog: traps the focus, closes on Escape and restores the focus.
import { html, useId, useLayoutEffect, useRef } from "../html.js";

export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  const titleId = useId();
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${element} aria-labelledby=${titleId} onCancel=${close} onClose=${onClose}>
    <h2 id=${titleId}>${title}</h2>
    ${children}
  </dialog>`;

  function close(event) {
    event.preventDefault();
    onClose();
  }
}
