// The registered workers, with their status and the jobs they run.
import { useResource } from "../data/resource.js";
import { count, duration } from "../format.js";
import { html, useState } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { LocalPager, useLocalPages } from "../parts/pager.js";
import { Table } from "../parts/table.js";
import { Timestamp } from "../parts/timestamp.js";

const ORDER = { lost: 0, silent: 1, draining: 2, alive: 3 };

const COLUMNS = [
  { label: "Status", kind: "tight", cell: ({ status }) => html`<${Badge} word=${status} />` },
  {
    label: "Worker",
    cell: ({ id, host, pid, ...rest }) =>
      html`<span><bdi>${id}</bdi><span class="sub"><bdi>${host}</bdi>, process ${pid}</span><${Blocked} ...${rest} /></span>`,
  },
  {
    label: "Queues",
    cell: ({ queues }) => html`<span>${queues.map((name, index) => html`${index > 0 && ", "}<bdi key=${name}>${name}</bdi>`)}</span>`,
  },
  { label: "Running", kind: "numeric", cell: ({ running }) => count(running) },
  { label: "Last heartbeat", kind: "numeric", cell: ({ silent_seconds }) => `${duration(silent_seconds)} ago` },
  { label: "Started", kind: "numeric", cell: ({ started_at }) => html`<${Timestamp} at=${started_at} />` },
  {
    label: "Crash is noticed",
    cell: ({ holds_locks: hasSessions }) => (hasSessions ? "at once" : "when its leases expire"),
  },
];

function Blocked({ blocked_seconds: seconds, blocked_frame: frame, blocked_stack: stack }) {
  if (seconds == null) return null;
  return html`<span class="sub" title=${stack}>The event loop has been blocked for ${duration(seconds)} at <bdi>${frame ?? "code that is not Python"}</bdi></span>`;
}

export function Workers() {
  const workers = useResource("workers");
  return html`
    <${Heading} title="Workers">A silent worker has sent no heartbeat for longer than expected. A lost worker's database
      sessions have ended, so its jobs are requeued. Behind a connection pooler a worker has no sessions of its own: its
      jobs are requeued when their leases expire.<//>
    <${ResourceView} resource=${workers} rows=${6}>
      ${({ workers: all }) =>
        all.length
          ? html`<${WorkerTable} all=${all} />`
          : html`<${EmptyState} title="No worker is registered">Start a worker: faultline --app MODULE:NAME worker<//>`}
    <//>
  `;
}

function WorkerTable({ all }) {
  const [filter, setFilter] = useState("");
  const found = all.filter((each) => `${each.id} ${each.host} ${each.status} ${each.queues.join(" ")}`.includes(filter.trim()));
  const sorted = found.sort((a, b) => (ORDER[a.status] ?? 4) - (ORDER[b.status] ?? 4) || a.id.localeCompare(b.id));
  const pages = useLocalPages(sorted, filter);
  return html`
    ${all.length > 10 &&
    html`<div class="filters"><label class="field">Filter
      <input type="search" placeholder="id, host, queue or status" value=${filter}
        onInput=${(event) => setFilter(event.currentTarget.value)} /></label></div>`}
    ${sorted.length
      ? html`<${Table} caption="Workers" list=${`${filter} ${pages.current}`} columns=${COLUMNS} rows=${pages.rows} rowKey=${({ id }) => id} />`
      : html`<${EmptyState} title="No worker matches the filter" />`}
    <${LocalPager} pages=${pages} what="workers" />
  `;
}
