// A job's task as a link to the job's page, with the shortened id below it.
import { html } from "../html.js";
import { shortId } from "../format.js";
import { linkTo } from "../router.js";

export function JobLink({ id, task }) {
  return html`<span>
    <a href=${linkTo("jobs", id)} title=${id}><bdi>${task ?? "purged job"}</bdi></a>
    <span class="sub job-id">${shortId(id)}</span>
  </span>`;
}
