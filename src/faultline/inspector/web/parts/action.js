// A button for an operator's action. Shown if the inspector allows actions and has a key or needs none; asks to confirm.
import { requestConfirmation } from "../data/confirmation.js";
import { operator } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { html } from "../html.js";

export function useMayOperate() {
  return useStore(operator, ({ key, hasActions, needsKey }) => hasActions && (key != null || !needsKey));
}

// `body` is the request's body; `subject` names what it acts on; `text` says what the action does. With `fields`, the dialog
// asks for values, and `bodyOf(body, values)` is sent.
export function ActionButton({ action, body, fields, bodyOf, label, subject, text, isDangerous, size, onDone }) {
  const mayOperate = useMayOperate();
  if (!mayOperate) return null;
  const open = () => requestConfirmation({ action, body, fields, bodyOf, label, subject, text, isDangerous, onDone });
  return html`<button class="button" data-size=${size} type="button" onClick=${open}>${label}</button>`;
}
