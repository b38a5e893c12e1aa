// Asks the operator to confirm an action. If the action fails, the dialog stays open and shows the error.
import { closeConfirmation, confirmation } from "../data/confirmation.js";
import { isKeyError, sendAction } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { html, useState } from "../html.js";
import { Dialog } from "../parts/dialog.js";
import { KeyForm } from "../parts/key_form.js";
import { ErrorText } from "../parts/notice.js";

const NOT_DONE = "Nothing was changed.";
const NOT_KNOWN = "It is unknown whether the action was carried out. Check the page before you try again.";

export function Confirmation() {
  const requested = useStore(confirmation, (value) => value.requested);
  return requested && html`<${ConfirmDialog} key=${JSON.stringify([requested.action, requested.body])} requested=${requested} />`;
}

function ConfirmDialog({ requested: { action, body, fields = [], bodyOf, label, subject, text, isDangerous, onDone } }) {
  const [isPending, setIsPending] = useState(false);
  const [error, setError] = useState(null);
  const [values, setValues] = useState(Object.fromEntries(fields.map(({ name, value }) => [name, value])));
  const needsKey = error != null && isKeyError(error);
  return html`<${Dialog} title=${html`${label}: <bdi>${subject}</bdi>`} onClose=${closeConfirmation}>
    <div class="stack">
      <p>${text}</p>
      ${error && html`<${ErrorText} error=${error} lead=${error.isRefusal ? NOT_DONE : NOT_KNOWN} />`}
      ${needsKey
        ? html`<${KeyForm} onDone=${() => setError(null)}>
            <button class="button" type="button" onClick=${closeConfirmation}>Close</button>
          <//>`
        : html`<form onSubmit=${confirm}>
            ${fields.length > 0 && html`<${Fields} fields=${fields} values=${values} onChange=${setValues} />`}
            <div class="dialog-buttons">
              <button class="button" type="button" autofocus onClick=${closeConfirmation}>${error ? "Close" : "Go back"}</button>
              <button class="button" data-kind=${isDangerous ? "danger" : "main"} type="submit" disabled=${isPending}>${label}</button>
            </div>
          </form>`}
    </div>
  <//>`;

  async function confirm(event) {
    event.preventDefault();
    setIsPending(true);
    setError(null);
    try {
      await sendAction(action, bodyOf ? bodyOf(body, values) : body);
      closeConfirmation();
      onDone();
    } catch (failure) {
      setError(failure);
      setIsPending(false);
    }
  }
}

// Numbers; an empty one means that the value is not given.
function Fields({ fields, values, onChange }) {
  return html`<div class="dialog-fields">
    ${fields.map(
      ({ name, label, least, step = 1 }) => html`<label key=${name} class="field">${label}
        <input type="number" inputmode="decimal" autocomplete="off" min=${least} step=${step} value=${values[name]}
          onInput=${({ currentTarget }) => onChange({ ...values, [name]: currentTarget.value })} />
      </label>`,
    )}
  </div>`;
}
