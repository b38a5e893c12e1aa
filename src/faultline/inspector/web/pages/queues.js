import { useResource } from "../data/resource.js";
import { compact, countOrEstimate, duration } from "../format.js";
import { html } from "../html.js";
import { Action, useMayOperate } from "../parts/action.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { Empty, Shown } from "../parts/notice.js";
import { usePages, WholePager } from "../parts/pager.js";
import { Table } from "../parts/table.js";
import { linkTo } from "../router.js";

export function Queues() {
  const queues = useResource("queues");
  return html`
    <${Heading} title="Queues">Jobs of a paused queue wait: no worker claims them. What is already running goes on.<//>
    <${Shown} resource=${queues} rows=${5}>
      ${({ queues: rows }) =>
        rows.length
          ? html`<${QueueTable} rows=${rows} reload=${queues.reload} />`
          : html`<${Empty} title="No queue has a job yet">A queue exists as soon as a job is enqueued in it.<//>`}
    <//>
  `;
}

function QueueTable({ rows, reload }) {
  const mayOperate = useMayOperate();
  const pages = usePages(rows, "queues");
  const columns = [
    {
      label: "Queue",
      cell: ({ queue, paused_reason: reason }) =>
        html`<span><a href=${linkTo("jobs", null, { queue })}>${queue}</a>${reason && html`<span class="sub">${reason}</span>`}</span>`,
    },
    { label: "Status", kind: "tight", cell: ({ paused }) => html`<${Badge} word=${paused ? "paused" : "open"} />` },
    number("Due", "due", "queued"),
    number("Scheduled", "scheduled", "queued"),
    number("Running", "running", "running"),
    number("Failed", "failed", "failed"),
    number("Succeeded", "succeeded", "succeeded", true),
    {
      label: "Oldest due",
      kind: "numeric",
      cell: ({ oldest_due_seconds: oldest }) => (oldest == null ? html`<span class="zero">–</span>` : duration(oldest)),
    },
  ];
  if (mayOperate) {
    columns.push({ label: "", kind: "tight", cell: (row) => html`<${Switch} queue=${row} onDone=${reload} />` });
  }
  return html`
    <${Table} caption="Queues" columns=${columns} rows=${pages.rows} rowKey=${({ queue }) => queue} />
    <${WholePager} pages=${pages} what="queues" />
  `;
}

// What succeeded is never counted: there may be millions.
function number(label, name, state, isEstimate = false) {
  return {
    label,
    kind: "numeric",
    cell: (row) => {
      const text = isEstimate && row[name] ? `~${compact(row[name])}` : countOrEstimate(row[name], row.is_exact);
      if (!row[name]) return html`<span class="zero">${text}</span>`;
      return html`<a href=${linkTo("jobs", null, { queue: row.queue, state })}>${text}</a>`;
    },
  };
}

function Switch({ queue: { queue, paused }, onDone }) {
  return paused
    ? html`<${Action} action="resume" body=${{ queue }} label="Resume" size="small" onDone=${onDone}
        question=${`Workers will claim the jobs of “${queue}” again.`} />`
    : html`<${Action} action="pause" body=${{ queue, reason: "from the dashboard" }} label="Pause" size="small"
        isDangerous onDone=${onDone} question=${`No worker will claim a job of “${queue}” until it is resumed. What runs now goes on.`} />`;
}
