// A button that changes something: only where the inspector allows it and a key was given, and never at one click.
import { operator } from "../data/operator.js";
import { ask } from "../data/question.js";
import { useStore } from "../data/store.js";
import { html } from "../html.js";

export function useMayOperate() {
  return useStore(operator, ({ key, hasActions }) => hasActions && key != null);
}

// `body` is what is sent; `subject` names what is changed; `text` says what will happen.
export function Action({ action, body, label, subject, text, isDangerous, size, onDone }) {
  const mayOperate = useMayOperate();
  if (!mayOperate) return null;
  const open = () => ask({ action, body, label, subject, text, isDangerous, onDone });
  return html`<button class="button" data-size=${size} type="button" onClick=${open}>${label}</button>`;
}
