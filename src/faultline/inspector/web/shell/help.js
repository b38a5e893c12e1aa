import { html } from "../html.js";
import { Dialog } from "../parts/dialog.js";
import { ShortcutList } from "./shortcuts.js";

export function Help({ onClose }) {
  return html`<${Dialog} title="Help" onClose=${onClose}>
    <div class="stack">
      <p>Every claim of a job raises its <strong>fencing token</strong> and gives the worker a <strong>lease</strong>.${" "}
        Only the newest token may commit: PostgreSQL refuses a worker that lost its lease, and everything in its
        transaction with it.</p>
      <${ShortcutList} />
      <div class="dialog-buttons">
        <button class="button" data-kind="main" type="button" autofocus onClick=${onClose}>Close</button>
      </div>
    </div>
  <//>`;
}
