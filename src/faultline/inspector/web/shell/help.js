// The help dialog: fencing in two sentences, and the keyboard shortcuts.
import { html } from "../html.js";
import { PAGES } from "../pages/pages.js";
import { Dialog } from "../parts/dialog.js";

export function Help({ onClose }) {
  return html`<${Dialog} title="Help" onClose=${onClose}>
    <div class="stack">
      <p>Every claim of a job raises the job's <strong>fencing token</strong> and gives the worker a <strong>lease</strong>.${" "}
        Only the newest token may commit. If a worker has lost its lease, PostgreSQL refuses its commit and rolls back its
        whole transaction.</p>
      <${ShortcutList} />
      <div class="dialog-buttons">
        <button class="button" data-kind="main" type="button" autofocus onClick=${onClose}>Close</button>
      </div>
    </div>
  <//>`;
}

function ShortcutList() {
  return html`<dl class="shortcuts">
    <dt><kbd>/</kbd></dt><dd>Find a job</dd>
    <dt><kbd>?</kbd></dt><dd>Open this help</dd>
    <dt><kbd>Esc</kbd></dt><dd>Close a dialog</dd>
    ${PAGES.map(
      ({ key, title }) => html`<dt key=${`${key}-keys`}><kbd>g</kbd> <kbd>${key}</kbd></dt>
        <dd key=${key}>${title}</dd>`,
    )}
  </dl>`;
}
