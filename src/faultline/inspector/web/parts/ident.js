// A job's id as a link to its page, and moments as <time>.
import { html } from "../html.js";
import { moment, shortId } from "../format.js";
import { linkTo } from "../router.js";

export function JobLink({ id, task }) {
  return html`<span>
    <a href=${linkTo("jobs", id)} title=${id}><bdi>${task ?? "removed by retention"}</bdi></a>
    <span class="sub ident">${shortId(id)}</span>
  </span>`;
}

export function Moment({ at, now }) {
  if (at == null) return html`<span class="zero">–</span>`;
  return html`<time datetime=${at} title=${at}>${moment(at, now)}</time>`;
}
