// A point in time as a <time> element: local time as text, the exact value as tooltip.
import { html } from "../html.js";
import { clockTime } from "../format.js";

export function Timestamp({ at, now }) {
  if (at == null) return html`<span class="zero">–</span>`;
  return html`<time datetime=${at} title=${at}>${clockTime(at, now)}</time>`;
}
