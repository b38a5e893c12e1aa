// The queues with their counts, and buttons to pause and resume them.
import { useResource } from "../data/resource.js";
import { countOrEstimate, duration } from "../format.js";
import { html } from "../html.js";
import { ActionButton, useMayOperate } from "../parts/action.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { LocalPager, useLocalPages } from "../parts/pager.js";
import { Table } from "../parts/table.js";
import { linkTo } from "../router.js";

export function Queues() {
  const queues = useResource("queues");
  return html`
    <${Heading} title="Queues">Workers claim no job of a paused queue. Jobs that are already running continue.<//>
    <${ResourceView} resource=${queues} rows=${5}>
      ${({ queues: rows }) =>
        rows.length
          ? html`<${QueueTable} rows=${rows} reload=${queues.reload} />`
          : html`<${EmptyState} title="There is no queue yet">A queue appears here when its first job is enqueued.<//>`}
    <//>
  `;
}

function QueueTable({ rows, reload }) {
  const mayOperate = useMayOperate();
  const pages = useLocalPages(rows, "queues");
  const columns = [
    {
      label: "Queue",
      cell: ({ queue, paused_reason: reason }) =>
        html`<span><a href=${linkTo("jobs", null, { queue })}><bdi>${queue}</bdi></a>${reason && html`<span class="sub"><bdi>${reason}</bdi></span>`}</span>`,
    },
    { label: "Status", kind: "tight", cell: ({ paused }) => html`<${Badge} word=${paused ? "paused" : "open"} />` },
    number("Due", "due", "queued"),
    number("Waiting", "waiting", "queued"),
    number("Scheduled", "scheduled", "queued"),
    number("Running", "running", "running"),
    number("Failed", "failed", "failed"),
    number("Succeeded", "succeeded", "succeeded", { exactness: "succeeded_is_exact", least: 1 }),
    {
      label: "Oldest due",
      kind: "numeric",
      cell: ({ oldest_due_seconds: oldest }) => (oldest == null ? html`<span class="zero">–</span>` : duration(oldest)),
    },
  ];
  if (mayOperate) {
    columns.push({ label: "", kind: "tight", cell: (row) => html`<${PauseButton} queue=${row} onDone=${reload} />` });
  }
  return html`
    <${Table} caption="Queues" list=${String(pages.current)} columns=${columns} rows=${pages.rows} rowKey=${({ queue }) => queue} />
    <${LocalPager} pages=${pages} what="queues" />
  `;
}

// `exactness` names the field that says whether the number is exact or an estimate.
function number(label, name, state, { exactness = "is_exact", least } = {}) {
  return {
    label,
    kind: "numeric",
    cell: (row) => {
      const text = countOrEstimate(row[name], row[exactness], least);
      if (!row[name]) return html`<span class="zero">${text}</span>`;
      const tone = state === "failed" ? "bad" : undefined;
      return html`<a data-tone=${tone} href=${linkTo("jobs", null, { queue: row.queue, state })}>${text}</a>`;
    },
  };
}

function PauseButton({ queue: { queue, paused }, onDone }) {
  return paused
    ? html`<${ActionButton} action="resume" body=${{ queue }} label="Resume" subject=${queue} size="small" onDone=${onDone}
        text="Workers will claim jobs of this queue again." />`
    : html`<${ActionButton} action="pause" body=${{ queue, reason: "paused in the dashboard" }} label="Pause" subject=${queue}
        size="small" isDangerous onDone=${onDone}
        text="No worker will claim a job of this queue until it is resumed. Jobs that are running now continue." />`;
}
