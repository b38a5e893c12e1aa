// A table. A phone shows its rows as cards; the explicit roles keep it a table for screen readers.
import { html } from "../html.js";
import { UpdateButton, useFrozenOrder } from "./frozen_order.js";

// `columns`: [{label, cell: (row) => …, kind: "numeric" | "tight" | "roomy" | undefined}]. The column of buttons has the label "".
// `list` identifies the list with its filters and page. While it stays the same, the order can be frozen.
export function Table({ caption, columns, rows, rowKey, list = caption, isNew = () => false }) {
  const frozen = useFrozenOrder(rows, rowKey, list);
  return html`<div class="table-card" ref=${frozen.ref}>
    <${UpdateButton} update=${frozen.update} />
    <table class="table" role="table">
      <caption class="visually-hidden">${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map(
            (column) => html`<th key=${column.label} role="columnheader" scope="col" class=${column.kind}>
              ${column.label || html`<span class="visually-hidden">Actions</span>`}
            </th>`,
          )}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${frozen.shown.map(
          (row) => html`<tr key=${rowKey(row)} role="row" data-new=${isNew(row) ? "" : undefined}
            data-gone=${frozen.isGone(row) ? "" : undefined} title=${frozen.isGone(row) ? "This row is no longer in the list." : undefined}>
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
