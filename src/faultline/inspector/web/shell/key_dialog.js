// The dialog for the operator's API key. The key is lost when the page is closed or reloaded.
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
      ${isRefused && html`<p class="error-text">The API refused this key. Enter another one.</p>`}
      <p>To retry or cancel jobs and to pause or resume queues, enter an API key with the scope <code>operate</code>.${" "}
        The key is checked now and stays only in this page's memory: after a reload, enter it again.</p>
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
