// A page's heading. It gets the focus after navigation, so that screen readers read it.
import { html } from "../html.js";

export function Heading({ title, children }) {
  return html`<header class="page-head">
    <h1 tabindex="-1">${title}</h1>
    ${children && html`<p>${children}</p>`}
  </header>`;
}
