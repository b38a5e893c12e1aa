// Where an operator gives a key. It is forgotten with the page.
import { forgetKey, operator } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { html } from "../html.js";
import { Dialog } from "../parts/dialog.js";
import { KeyForm } from "../parts/key_form.js";

export function KeyDialog({ onClose }) {
  const hasKey = useStore(operator, ({ key }) => key != null);
  const isRefused = useStore(operator, (value) => value.isRefused);
  return html`<${Dialog} title="Operator key" onClose=${onClose}>
    <div class="stack">
      ${isRefused && html`<p class="error-text">The API refused the key that was given. Give another one.</p>`}
      <p>Retrying, cancelling and pausing need an API key with the scope <code>operate</code>.${" "}
        It is checked now and kept in this page's memory only: a reload forgets it.</p>
      <${KeyForm} onDone=${onClose}>
        ${hasKey && html`<button class="button" type="button" onClick=${forget}>Forget the key</button>`}
        <button class="button" type="button" onClick=${onClose}>Close</button>
      <//>
    </div>
  <//>`;

  function forget() {
    forgetKey();
    onClose();
  }
}
