// A table that stays one for screen readers when a phone shows its rows as cards: hence the explicit roles.
import { html } from "../html.js";
import { UpdateButton, useHeld } from "./held.js";

// `columns`: [{label, cell: (row) => …, kind: "numeric" | "tight" | undefined}]
// `list` identifies what is listed, its filters and its page: while it stays the same, rows hold still for a reader.
export function Table({ caption, columns, rows, rowKey, list = caption, isNew = () => false }) {
  const held = useHeld(rows, rowKey, list);
  return html`<div class="table-card" ref=${held.ref}>
    <${UpdateButton} update=${held.update} />
    <table class="table" role="table">
      <caption class="visually-hidden">${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map(
            (column) => html`<th key=${column.label} role="columnheader" scope="col" class=${column.kind}>${column.label}</th>`,
          )}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${held.shown.map(
          (row) => html`<tr key=${rowKey(row)} role="row" data-new=${isNew(row) ? "" : undefined}
            data-gone=${held.isGone(row) ? "" : undefined} title=${held.isGone(row) ? "no longer in this list" : undefined}>
            ${columns.map((column) => html`<${Cell} key=${column.label} column=${column} row=${row} />`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function Cell({ column, row }) {
  const content = column.cell(row);
  const isEmpty = content == null || content === "";
  return html`<td role="cell" class=${column.kind} data-label=${column.label} data-empty=${isEmpty ? "" : undefined}>
    ${typeof content === "string" ? html`<bdi>${content}</bdi>` : content}
  </td>`;
}
