// The page of one limit: its values, who changed it, its tasks, and the keys with the most waiting jobs.
import { useResource } from "../data/resource.js";
import { count } from "../format.js";
import { html } from "../html.js";
import { ChangeLimit, limitInWords, placesInWords, ResetLimit } from "../parts/limit.js";
import { ErrorState, Loading } from "../parts/notice.js";
import { Table } from "../parts/table.js";
import { Timestamp } from "../parts/timestamp.js";
import { go, linkTo } from "../router.js";
import { changer } from "./limits.js";

const KEYS = [
  { label: "Key", cell: ({ limit_key: key }) => key.slice(key.indexOf("=") + 1) },
  { label: "Running", kind: "numeric", cell: ({ running }) => count(running) },
  { label: "Waiting", kind: "numeric", cell: ({ waiting }) => count(waiting) },
  { label: "Waits since", kind: "numeric", cell: ({ waits_since: at }) => at && html`<${Timestamp} at=${at} />` },
  { label: "Next start", kind: "numeric", cell: ({ next_start_at: at }) => at && html`<${Timestamp} at=${at} />` },
];

export function Limit({ name }) {
  const limit = useResource(`limits/${encodeURIComponent(name)}`);
  if (!limit.data) {
    return html`<h1 tabindex="-1">Limit</h1>
      ${limit.error ? html`<${ErrorState} error=${limit.error} onRetry=${limit.reload} />` : html`<${Loading} rows=${5} />`}
      <p><a href=${linkTo("limits")}>All limits</a></p>`;
  }
  const { keys } = limit.data;
  return html`
    <header class="job-title">
      <h1 tabindex="-1"><bdi>${name}</bdi></h1>
      <div class="job-actions">
        <${ChangeLimit} limit=${limit.data} onDone=${limit.reload} />
        <${ResetLimit} limit=${limit.data} onDone=${limit.data.is_declared ? limit.reload : () => go("limits")} />
      </div>
    </header>
    <${Facts} limit=${limit.data} />
    ${keys.length > 0 &&
    name.startsWith("key:") &&
    html`<${Table} caption="Fullest keys" columns=${KEYS} rows=${keys} rowKey=${({ limit_key: key }) => key} />`}
  `;
}

function Facts({ limit }) {
  const { arguments: bound, last_change: change } = limit;
  const kind = limit.name.split(":", 1)[0];
  const facts = [
    ["Allows", limitInWords(limit)],
    ["Running", placesInWords(limit)],
    ["Waiting", count(limit.waiting)],
    ["Changed", html`<${Timestamp} at=${limit.changed_at} />`],
    ["Changed by", change?.actor && limit.changed_by === "operator" ? change.actor : changer(limit.changed_by)],
    ["Declared in code", limit.is_declared ? "yes" : "no"],
    ...bound.map(({ task, argument }) => [`Key of ${task}`, argument]),
    kind === "queue" && ["Jobs", html`<a href=${linkTo("jobs", null, { queue: limit.name.slice(6), state: "queued" })}>of this queue</a>`],
    kind === "task" && ["Jobs", html`<a href=${linkTo("jobs", null, { task: limit.name.slice(5), state: "queued" })}>of this task</a>`],
    ["Changes", html`<a href=${linkTo("audit", null, { object: `limit ${limit.name}` })}>in the audit log</a>`],
  ].filter(Boolean);
  return html`<section class="card">
    <div class="card-head"><h2>Details</h2></div>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt><bdi>${name}</bdi></dt><dd><bdi>${value}</bdi></dd></div>`)}</dl>
  </section>`;
}
