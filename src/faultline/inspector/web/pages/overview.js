// The overview: problems first, then totals, charts and the latest refused writes.
import { live } from "../data/live.js";
import { useResource } from "../data/resource.js";
import { useStore } from "../data/store.js";
import { count, countOrEstimate, sentence } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { Timestamp } from "../parts/timestamp.js";
import { linkTo } from "../router.js";
import { Attention } from "./attention.js";
import { Charts } from "./overview_charts.js";

const MAX_REFUSALS = 5;

export function Overview() {
  const streamed = useStore(live, ({ overview }) => overview);
  const fetched = useResource("overview", { isLive: false }); // faster than waiting for the stream's first event
  const resource = streamed ? { ...fetched, data: streamed, error: null } : fetched;
  return html`
    <${Heading} title="Overview" />
    <${ResourceView} resource=${resource} rows=${6}>${(overview) => html`<${Facts} overview=${overview} />`}<//>
  `;
}

function Facts({ overview }) {
  const { totals, throughput, workers } = overview;
  const isIdle = !totals.due && !totals.running && !totals.waiting && !totals.scheduled && !totals.failed && !throughput.succeeded_per_second;
  return html`
    <${Attention} overview=${overview} />
    <div class="grid" data-columns="3">
      <${Totals} totals=${totals} />
      <${WorkerCard} workers=${workers} />
      <${Risk} risk=${overview.risk} />
    </div>
    <${Charts} overview=${overview} />
    <${Refusals} lastHour=${overview.rejections_last_hour} />
    ${isIdle &&
    !workers.alive &&
    html`<${EmptyState} title="The queue is empty and no worker is running">Enqueue a job and start a worker: faultline --app MODULE:NAME worker<//>`}
  `;
}

function Risk({ risk }) {
  const reasons = risk.reasons ?? [];
  return html`<section class="card">
    <div class="card-head"><h2>Stale-write risk</h2><${Badge} word=${risk.stale_risk} /></div>
    ${reasons.length
      ? html`<ul class="reasons">${reasons.map(({ code, text }) => html`<li key=${code}>${sentence(text)}</li>`)}</ul>`
      : html`<p class="quiet">No lease is about to expire, and PostgreSQL has refused no write recently.</p>`}
  </section>`;
}

function WorkerCard({ workers }) {
  return html`<section class="card">
    <div class="card-head"><h2>Workers</h2><a href=${linkTo("workers")}>All workers</a></div>
    <dl class="tally">
      <${Count} name="alive" value=${workers.alive} />
      <${Count} name="draining" value=${workers.draining} />
      <${Count} name="silent" value=${workers.silent} tone="warn" />
      <${Count} name="lost" value=${workers.lost} tone="bad" />
    </dl>
  </section>`;
}

function Totals({ totals }) {
  const isExact = totals.is_exact;
  return html`<section class="card">
    <div class="card-head"><h2>Jobs</h2><a href=${linkTo("queues")}>By queue</a></div>
    <dl class="tally">
      <${Count} name="due" value=${totals.due} isExact=${isExact} href=${linkTo("jobs", null, { state: "queued" })} />
      <${Count} name="running" value=${totals.running} isExact=${isExact} />
      <${Count} name="waiting" value=${totals.waiting} isExact=${isExact} href=${linkTo("limits")} />
      <${Count} name="scheduled" value=${totals.scheduled} isExact=${isExact} />
      <${Count} name="failed" value=${totals.failed} isExact=${isExact} tone="bad" href=${linkTo("jobs", null, { state: "failed" })} />
    </dl>
  </section>`;
}

function Count({ name, value, isExact, tone, href }) {
  const text = countOrEstimate(value, isExact);
  return html`<div>
    <dt>${name}</dt>
    <dd data-tone=${value ? tone : undefined} class=${value ? undefined : "zero"}>
      ${href && value ? html`<a href=${href}>${text}</a>` : text}
    </dd>
  </div>`;
}

function Refusals({ lastHour }) {
  const { data } = useResource(`rejections?limit=${MAX_REFUSALS}`);
  const latest = data?.rejections ?? [];
  return html`<section class="card">
    <div class="card-head">
      <h2>Refused writes</h2>
      <a href=${linkTo("rejections")}>${count(lastHour ?? 0)} in the last hour</a>
    </div>
    ${latest.length
      ? html`<ul class="list">${latest.map((each) => html`<${Refusal} key=${each.id} refusal=${each} />`)}</ul>`
      : html`<p class="quiet">No worker has tried to commit with an old token.</p>`}
  </section>`;
}

function Refusal({ refusal: { job_id: id, task, stale_token: token, worker, rejected_at: at } }) {
  return html`<li>
    <span><a href=${linkTo("jobs", id)}><bdi>${task ?? "a purged job"}</bdi></a>: PostgreSQL refused the commit of${" "}
      <bdi>${worker}</bdi> with token ${token}</span>
    <span class="quiet"><${Timestamp} at=${at} /></span>
  </li>`;
}
