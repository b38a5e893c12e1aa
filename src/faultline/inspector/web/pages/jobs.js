// The list of jobs, filtered by state, queue, task, tag and key. The filters are in the URL, so that a view can be linked.
import { withQuery } from "../data/api.js";
import { useResource } from "../data/resource.js";
import { isShortSearch, makeJobSearch } from "../data/job_search.js";
import { html, useRef } from "../html.js";
import { Badge, Token } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { JobLink } from "../parts/job_link.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { Pager, useCursors } from "../parts/pager.js";
import { ProgressBar } from "../parts/progress_bar.js";
import { Table } from "../parts/table.js";
import { Timestamp } from "../parts/timestamp.js";
import { count, humanize } from "../format.js";
import { go, linkTo } from "../router.js";

const PAGE_SIZE = 50;
const MAX_SUGGESTED_QUEUES = 100;
const STATES = ["queued", "running", "succeeded", "failed"];

const COLUMNS = [
  { label: "State", kind: "tight", cell: ({ state, progress, waits_for: limit }) => html`<${State} state=${limit ? "waiting" : state} progress=${progress} />` },
  { label: "Job", cell: ({ id, task }) => html`<${JobLink} id=${id} task=${task} />` },
  { label: "Queue", cell: ({ queue }) => queue },
  { label: "Attempts", kind: "numeric", cell: ({ attempts, max_attempts: most }) => `${attempts} of ${most}` },
  { label: "Token", kind: "tight", cell: ({ token }) => html`<${Token} value=${token || null} />` },
  { label: "Created", kind: "numeric", cell: ({ created_at: at }) => html`<${Timestamp} at=${at} />` },
  { label: "Ended", kind: "numeric", cell: ({ finished_at: at }) => html`<${Timestamp} at=${at} />` },
  {
    label: "Last error",
    cell: ({ failed_reason: reason, last_error: error }) =>
      (reason || error) && html`<${JobError} reason=${reason} error=${error} />`,
  },
];

function State({ state, progress }) {
  return html`<${Badge} word=${state} />${progress && html`<${ProgressBar} progress=${progress} />`}`;
}

function JobError({ reason, error }) {
  return html`<span>
    ${reason && html`<span class="sub">${humanize(reason)}</span>`}
    <span class="clip"><bdi>${firstLine(error)}</bdi></span>
  </span>`;
}

function firstLine(error) {
  return error?.split("\n", 1)[0];
}

export function Jobs({ query }) {
  const filters = Object.fromEntries(["state", "queue", "task", "tag", "key"].map((name) => [name, query.get(name) ?? ""]));
  const isFiltered = Object.values(filters).some(Boolean);
  const cursors = useCursors(JSON.stringify(filters));
  const path = withQuery("jobs", { ...filters, after: cursors.cursor });
  const stopped = useRef(null); // the path whose search the user has stopped
  const load = makeJobSearch(PAGE_SIZE, () => stopped.current === path);
  const jobs = useResource(path, { load, isLive: isShortSearch });
  const stop = () => {
    stopped.current = path;
  };
  const searchAgain = () => {
    stopped.current = null;
    jobs.reload();
  };
  return html`
    <${Heading} title="Jobs" />
    <${Filters} filters=${filters} isFiltered=${isFiltered} />
    <${ResourceView} resource=${jobs} rows=${10}>
      ${(found) => html`
        <${Progress} found=${found} onStop=${stop} onAgain=${searchAgain} />
        ${found.jobs.length > 0 &&
        html`<${Table} caption="Jobs" list=${path} columns=${COLUMNS} rows=${found.jobs} rowKey=${({ id }) => id} />`}
        ${found.jobs.length === 0 && !found.next && html`<${NoJobs} isFiltered=${isFiltered} />`}
        ${!found.isSearching &&
        html`<${Pager} cursors=${cursors} next=${found.next} shown=${found.jobs.length} what="jobs" />`}
      `}
    <//>
  `;
}

function NoJobs({ isFiltered }) {
  return isFiltered
    ? html`<${EmptyState} title="No job matches the filters"><a href=${linkTo("jobs")}>Show all jobs</a><//>`
    : html`<${EmptyState} title="No job has been enqueued yet">Jobs appear here as soon as one is enqueued.<//>`;
}

// The progress of a search that no index supports, with a button to stop it.
function Progress({ found: { jobs, searched, searchedUntil, isSearching }, onStop, onAgain }) {
  if (!isSearching && isShortSearch({ searched, searchedUntil })) return null;
  const until = searchedUntil && html`, up to <${Timestamp} at=${searchedUntil} />`;
  return html`<div class="progress" role="status">
    <span>${isSearching ? "Searching" : "Searched"} ${count(searched)} jobs${until}: ${count(jobs.length)} found.</span>
    ${isSearching
      ? html`<button class="button" data-size="small" type="button" onClick=${onStop}>Stop searching</button>`
      : html`<button class="button" data-kind="quiet" data-size="small" type="button" onClick=${onAgain}>Search again</button>`}
  </div>`;
}

function Filters({ filters, isFiltered }) {
  const queues = useResource("queues", { isLive: false });
  const change = (name) => (event) => go("jobs", null, { ...filters, [name]: event.currentTarget.value.trim() });
  return html`<form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    <label class="field">State
      <select value=${filters.state} onChange=${change("state")}>
        <option value="">any</option>
        ${STATES.map((state) => html`<option key=${state} value=${state}>${state}</option>`)}
      </select>
    </label>
    <label class="field">Queue
      <input list="queue-names" autocomplete="off" placeholder="any" value=${filters.queue} onChange=${change("queue")} />
      <datalist id="queue-names">
        ${(queues.data?.queues ?? [])
          .slice(0, MAX_SUGGESTED_QUEUES)
          .map(({ queue }) => html`<option key=${queue} value=${queue} />`)}
      </datalist>
    </label>
    <label class="field">Task
      <input autocomplete="off" spellcheck=${false} placeholder="any" value=${filters.task} onChange=${change("task")} />
    </label>
    <label class="field">Tag
      <input autocomplete="off" spellcheck=${false} placeholder="any" value=${filters.tag} onChange=${change("tag")} />
    </label>
    <label class="field">Idempotency key
      <input autocomplete="off" spellcheck=${false} placeholder="any" value=${filters.key} onChange=${change("key")} />
    </label>
    ${isFiltered && html`<a class="button" data-kind="quiet" href=${linkTo("jobs")}>Clear</a>`}
  </form>`;
}
