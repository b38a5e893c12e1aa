// A button that changes something: only where the inspector allows it and a key was given, and never at one click.
import { act, operator } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { html, useState } from "../html.js";
import { Dialog } from "./dialog.js";

export function useMayOperate() {
  return useStore(operator, ({ key, hasActions }) => hasActions && key != null);
}

// `body` is what is sent; `question` says what will happen, in words.
export function Action({ action, body, label, question, isDangerous, size, onDone }) {
  const mayOperate = useMayOperate();
  const [isOpen, setIsOpen] = useState(false);
  if (!mayOperate && !isOpen) return null;
  return html`
    <button class="button" data-size=${size} type="button" onClick=${() => setIsOpen(true)}>${label}</button>
    ${isOpen &&
    html`<${Confirmation} ...${{ action, body, label, question, isDangerous, onDone }}
      onClose=${() => setIsOpen(false)} />`}
  `;
}

function Confirmation({ action, body, label, question, isDangerous, onDone, onClose }) {
  const [isUnderWay, setIsUnderWay] = useState(false);
  const [error, setError] = useState(null);
  return html`<${Dialog} title=${`${label}?`} onClose=${onClose}>
    <form onSubmit=${confirm}>
      <p>${question}</p>
      ${error &&
      html`<p class="error-text" role="alert">${[error.message, error.hint, `(${error.code})`].filter(Boolean).join(" · ")}</p>`}
      <div class="dialog-buttons">
        <button class="button" type="button" autofocus onClick=${onClose}>Leave it</button>
        <button class="button" data-kind=${isDangerous ? "danger" : "main"} type="submit" disabled=${isUnderWay}>${label}</button>
      </div>
    </form>
  <//>`;

  async function confirm(event) {
    event.preventDefault();
    setIsUnderWay(true);
    setError(null);
    try {
      await act(action, body);
      onClose();
      onDone();
    } catch (failure) {
      setError(failure);
      setIsUnderWay(false);
    }
  }
}
