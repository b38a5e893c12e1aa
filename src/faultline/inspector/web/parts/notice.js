// The states that are not data: loading, empty, an error. And `Shown`, which chooses between them.
import { sentence } from "../format.js";
import { html } from "../html.js";

export function Loading({ rows = 5 }) {
  return html`<div class="skeleton" role="status">
    <span class="visually-hidden">Loading</span>
    ${Array.from({ length: rows }, (_, index) => html`<i key=${index} aria-hidden="true"></i>`)}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="notice"><strong>${title}</strong>${children && html`<p>${children}</p>`}</div>`;
}

export function Failure({ error, onRetry }) {
  return html`<div class="notice" data-tone="bad" role="alert">
    <strong><bdi>${error.message}</bdi></strong>
    ${error.hint && html`<p><bdi>${error.hint}</bdi></p>`}
    <p class="quiet">${error.code}</p>
    ${onRetry && html`<button class="button" type="button" onClick=${onRetry}>Try again</button>`}
  </div>`;
}

// What is wrong, what to do about it, and the stable code. `lead` says what became of the request.
export function ErrorText({ error, lead }) {
  return html`<div class="error-text" role="alert">
    <p><strong>${lead}</strong> <bdi>${sentence(error.message)}</bdi></p>
    ${error.hint && html`<p><bdi>${error.hint}</bdi></p>`}
    <p class="quiet">${error.code}</p>
  </div>`;
}

// What was last seen stays on the page when the database goes away: the banner says so. Only where nothing
// was ever seen does an error take the place of the data.
export function Shown({ resource, rows, children }) {
  if (resource.data != null && !(resource.error && !resource.error.isAway)) return children(resource.data);
  if (resource.error) return html`<${Failure} error=${resource.error} onRetry=${resource.reload} />`;
  return html`<${Loading} rows=${rows} />`;
}
