import { useResource } from "../data/resource.js";
import { count, duration } from "../format.js";
import { html, useState } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { Moment } from "../parts/ident.js";
import { Empty, Shown } from "../parts/notice.js";
import { usePages, WholePager } from "../parts/pager.js";
import { Table } from "../parts/table.js";

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
  { label: "Started", kind: "numeric", cell: ({ started_at }) => html`<${Moment} at=${started_at} />` },
  {
    label: "Death is noticed",
    cell: ({ holds_locks: hasSessions }) => (hasSessions ? "at once" : "when its lease runs out"),
  },
];

function Blocked({ blocked_seconds: seconds, blocked_frame: frame, blocked_stack: stack }) {
  if (seconds == null) return null;
  return html`<span class="sub" title=${stack}>event loop blocked for ${duration(seconds)} at <bdi>${frame ?? "code that is not Python"}</bdi></span>`;
}

export function Workers() {
  const workers = useResource("workers");
  return html`
    <${Heading} title="Workers">Silent: no heartbeat for longer than expected. Lost: its sessions have ended, and
      its jobs are given to others. Behind a pooler a worker has no sessions of its own: only its lease tells.<//>
    <${Shown} resource=${workers} rows=${6}>
      ${({ workers: all }) =>
        all.length
          ? html`<${WorkerTable} all=${all} />`
          : html`<${Empty} title="No worker is registered">Start one: faultline --app shop.jobs:app worker<//>`}
    <//>
  `;
}

function WorkerTable({ all }) {
  const [wanted, setWanted] = useState("");
  const found = all.filter((each) => `${each.id} ${each.host} ${each.status} ${each.queues.join(" ")}`.includes(wanted.trim()));
  const sorted = found.sort((a, b) => (ORDER[a.status] ?? 4) - (ORDER[b.status] ?? 4) || a.id.localeCompare(b.id));
  const pages = usePages(sorted, wanted);
  return html`
    ${all.length > 10 &&
    html`<div class="filters"><label class="field">Filter
      <input type="search" placeholder="id, host, queue or status" value=${wanted}
        onInput=${(event) => setWanted(event.currentTarget.value)} /></label></div>`}
    ${sorted.length
      ? html`<${Table} caption="Workers" list=${`${wanted} ${pages.current}`} columns=${COLUMNS} rows=${pages.rows} rowKey=${({ id }) => id} />`
      : html`<${Empty} title="No worker matches" />`}
    <${WholePager} pages=${pages} what="workers" />
  `;
}
