// A table that stays one for screen readers when a phone shows its rows as cards: hence the explicit roles.
import { html } from "../html.js";

// `columns`: [{label, cell: (row) => …, kind: "numeric" | "tight" | undefined, hideEmpty}]
export function Table({ caption, columns, rows, rowKey, isNew = () => false }) {
  return html`<div class="table-card">
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
        ${rows.map(
          (row) => html`<tr key=${rowKey(row)} role="row" data-new=${isNew(row) ? "" : undefined}>
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
    ${content}
  </td>`;
}
