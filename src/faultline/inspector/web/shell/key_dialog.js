// Where an operator gives a key. It is forgotten with the page.
import { operator, setKey } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { html, useState } from "../html.js";
import { Dialog } from "../parts/dialog.js";

export function KeyDialog({ onClose }) {
  const hasKey = useStore(operator, ({ key }) => key != null);
  const [text, setText] = useState("");
  return html`<${Dialog} title="Operator key" onClose=${onClose}>
    <form onSubmit=${keep}>
      <p>Retrying, cancelling and pausing need an API key with the scope <code>operate</code>.${" "}
        It is kept in this page's memory only: a reload forgets it.</p>
      <label class="field">Key
        <input type="password" autocomplete="off" autofocus placeholder="flk_…" value=${text}
          onInput=${(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="dialog-buttons">
        ${hasKey && html`<button class="button" type="button" onClick=${forget}>Forget the key</button>`}
        <button class="button" type="button" onClick=${onClose}>Close</button>
        <button class="button" data-kind="main" type="submit" disabled=${!text.trim()}>Use this key</button>
      </div>
    </form>
  <//>`;

  function keep(event) {
    event.preventDefault();
    setKey(text.trim());
    onClose();
  }

  function forget() {
    setKey(null);
    onClose();
  }
}
