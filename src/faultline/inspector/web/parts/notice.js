// What a page shows instead of data: loading, empty or an error. `ResourceView` chooses between them.
import { capitalize, sentence } from "../format.js";
import { html } from "../html.js";

export function Loading({ rows = 5 }) {
  return html`<div class="skeleton" role="status">
    <span class="visually-hidden">Loading</span>
    ${Array.from({ length: rows }, (_, index) => html`<i key=${index} aria-hidden="true"></i>`)}
  </div>`;
}

export function EmptyState({ title, children }) {
  return html`<div class="notice"><strong>${title}</strong>${children && html`<p>${children}</p>`}</div>`;
}

export function ErrorState({ error, onRetry }) {
  return html`<div class="notice" data-tone="bad" role="alert">
    <strong><bdi>${sentence(error.message)}</bdi></strong>
    ${error.hint && html`<p><bdi>${capitalize(error.hint)}</bdi></p>`}
    <p class="quiet">${error.code}</p>
    ${onRetry && html`<button class="button" type="button" onClick=${onRetry}>Try again</button>`}
  </div>`;
}

// The error's message, its hint and its stable code. `lead` says whether the action was carried out.
export function ErrorText({ error, lead }) {
  return html`<div class="error-text" role="alert">
    <p><strong>${lead}</strong> <bdi>${sentence(error.message)}</bdi></p>
    ${error.hint && html`<p><bdi>${capitalize(error.hint)}</bdi></p>`}
    <p class="quiet">${error.code}</p>
  </div>`;
}

// During an outage the last data stays on the page, and the banner says how old it is. An error replaces the data only
// if there is none yet, or if the inspector rejected the request.
export function ResourceView({ resource, rows, children }) {
  if (resource.data != null && !(resource.error && !resource.error.isOutage)) return children(resource.data);
  if (resource.error) return html`<${ErrorState} error=${resource.error} onRetry=${resource.reload} />`;
  return html`<${Loading} rows=${rows} />`;
}
