// What is wrong, then how the queue is doing.
import { live } from "../data/live.js";
import { useResource } from "../data/resource.js";
import { useStore } from "../data/store.js";
import { count, countOrEstimate } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { Moment } from "../parts/ident.js";
import { Empty, Shown } from "../parts/notice.js";
import { linkTo } from "../router.js";
import { Attention } from "./attention.js";
import { Charts } from "./overview_charts.js";

const REFUSALS_SHOWN = 5;

export function Overview() {
  const streamed = useStore(live, ({ overview }) => overview);
  const fetched = useResource("overview", { isLive: false }); // does not wait for the stream's first word
  const resource = streamed ? { ...fetched, data: streamed, error: null } : fetched;
  return html`
    <${Heading} title="Overview" />
    <${Shown} resource=${resource} rows=${6}>${(overview) => html`<${Facts} overview=${overview} />`}<//>
  `;
}

function Facts({ overview }) {
  const { totals, throughput, workers } = overview;
  const isIdle = !totals.due && !totals.running && !totals.scheduled && !totals.failed && !throughput.succeeded_per_second;
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
    html`<${Empty} title="Nothing is going on">Enqueue a job and start a worker: faultline --app shop.jobs:app worker<//>`}
  `;
}

function Risk({ risk }) {
  const reasons = risk.reasons ?? [];
  return html`<section class="card">
    <div class="card-head"><h2>Stale-write risk</h2><${Badge} word=${risk.stale_risk} /></div>
    ${reasons.length
      ? html`<ul class="reasons">${reasons.map(({ code, text }) => html`<li key=${code}>${text}</li>`)}</ul>`
      : html`<p class="quiet">No lease is close to its end, and no write was refused lately.</p>`}
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
  const { data } = useResource(`rejections?limit=${REFUSALS_SHOWN}`);
  const latest = data?.rejections ?? [];
  return html`<section class="card">
    <div class="card-head">
      <h2>Refused writes</h2>
      <a href=${linkTo("rejections")}>${count(lastHour ?? 0)} in the last hour</a>
    </div>
    ${latest.length
      ? html`<ul class="list">${latest.map((each) => html`<${Refusal} key=${each.id} refusal=${each} />`)}</ul>`
      : html`<p class="quiet">No worker has tried to commit under a token that was no longer its own.</p>`}
  </section>`;
}

function Refusal({ refusal: { job_id: id, task, stale_token: token, worker, rejected_at: at } }) {
  return html`<li>
    <span><a href=${linkTo("jobs", id)}><bdi>${task ?? "a job that is gone"}</bdi></a>: token ${token}${" "}
      of <bdi>${worker}</bdi> came too late</span>
    <span class="quiet"><${Moment} at=${at} /></span>
  </li>`;
}
