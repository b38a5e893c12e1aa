// A page's heading: focused when one arrives, so that it is read out.
import { html } from "../html.js";

export function Heading({ title, children }) {
  return html`<header class="page-head">
    <h1 tabindex="-1">${title}</h1>
    ${children && html`<p>${children}</p>`}
  </header>`;
}
