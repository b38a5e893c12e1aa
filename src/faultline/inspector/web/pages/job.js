// The page of one job: its state, timeline, details, payload and result, and the operator's actions.
import { useResource } from "../data/resource.js";
import { count, duration, humanize, shortId } from "../format.js";
import { html, useState } from "../html.js";
import { ActionButton } from "../parts/action.js";
import { Badge, Token } from "../parts/badge.js";
import { indentJson, JsonView } from "../parts/json_view.js";
import { ErrorState, Loading } from "../parts/notice.js";
import { ProgressBar } from "../parts/progress_bar.js";
import { ScheduleLink } from "../parts/schedule.js";
import { Timestamp } from "../parts/timestamp.js";
import { linkTo } from "../router.js";
import { Timeline } from "../timeline/drawing.js";
import { seconds } from "../timeline/layout.js";
import { summaryOf, toneOfEvent } from "../timeline/summary.js";
import { JobWhy } from "./job_why.js";

const MAX_CHARACTERS = 20_000;
const MAX_EVENTS = 60;

export function Job({ id }) {
  const path = `jobs/${encodeURIComponent(id)}`;
  const job = useResource(path);
  const timeline = useResource(`${path}/timeline`);
  const reload = () => {
    job.reload();
    timeline.reload();
  };
  if (!job.data) {
    return html`<h1 tabindex="-1">Job</h1>
      ${job.error ? html`<${ErrorState} error=${job.error} onRetry=${reload} />` : html`<${Loading} rows=${5} />`}
      <p><a href=${linkTo("jobs")}>All jobs</a></p>`;
  }
  return html`
    <${Title} job=${job.data} onDone=${reload} />
    <${JobWhy} job=${job.data} />
    ${job.data.progress && html`<${ProgressCard} progress=${job.data.progress} />`}
    ${timeline.data && html`<${TimelineCard} timeline=${timeline.data} job=${job.data} />`}
    <${Facts} job=${job.data} />
    <${Texts} job=${job.data} />
  `;
}

function ProgressCard({ progress }) {
  return html`<section class="card">
    <div class="card-head"><h2>Progress</h2></div>
    <${ProgressBar} progress=${progress} />
    <p class="quiet">Reported <${Timestamp} at=${progress.reported_at} /></p>
  </section>`;
}

function Texts({ job }) {
  const tone = job.state === "failed" ? "bad" : "plain"; // an error of a job that was retried is not a problem any more
  return html`
    ${job.last_error && html`<${Block} title="Last error" text=${job.last_error} tone=${tone} />`}
    <${Json} title="Payload" text=${job.payload_text} bytes=${job.payload_bytes} />
    ${job.result_bytes != null && html`<${Json} title="Result" text=${job.result_text} bytes=${job.result_bytes} />`}
  `;
}

function Title({ job, onDone }) {
  const { id, task, state } = job;
  const subject = `${task}, ${shortId(id)}`;
  const cancelling =
    state === "running"
      ? "The job fails now. Its worker loses the lease, and PostgreSQL will refuse that worker's commit."
      : "The job fails now and will not run.";
  return html`<header class="job-title">
    <h1 tabindex="-1"><bdi>${task}</bdi></h1>
    <${Badge} word=${job.waits_for ? "waiting" : state} />
    <div class="job-actions">
      ${state === "failed" &&
      html`<${ActionButton} action="retry" body=${{ job_id: id }} label="Retry job" subject=${subject} onDone=${onDone}
        text="The job is queued again and may use all its attempts again. Its fencing token continues from its current value." />`}
      ${(state === "queued" || state === "running") &&
      html`<${ActionButton} action="cancel" body=${{ job_id: id }} label="Cancel job" subject=${subject} isDangerous
        onDone=${onDone} text=${cancelling} />`}
    </div>
    <p class="job-id quiet">${id}</p>
  </header>`;
}

function TimelineCard({ timeline, job }) {
  const summary = summaryOf(timeline, job.failed_reason);
  const hasAttempts = timeline.attempts.length > 0 || timeline.rejections.length > 0;
  return html`<section class="card">
    <div class="card-head"><h2>Timeline</h2></div>
    ${summary && html`<p class="timeline-summary" data-tone=${summary.tone}><bdi>${summary.text}</bdi></p>`}
    ${hasAttempts && html`<${Timeline} timeline=${timeline} summary=${summary?.text ?? "The attempts of this job"} />`}
    <${Events} timeline=${timeline} />
  </section>`;
}

function Events({ timeline }) {
  const [isExpanded, setIsExpanded] = useState(false);
  const { events } = timeline;
  const hidden = isExpanded ? 0 : Math.max(0, events.length - MAX_EVENTS);
  const start = seconds(timeline.created_at);
  const isShort = seconds(events.at(-1).at) - start < 60;
  return html`
    ${hidden > 0 &&
    html`<button class="button" data-kind="quiet" data-size="small" type="button" onClick=${() => setIsExpanded(true)}>
      Show ${hidden} earlier events
    </button>`}
    <ol class="event-list" aria-label="Events of this job, oldest first">
      ${events.slice(hidden).map(
        ({ at, kind, worker, text }, index) => html`<li key=${index} data-tone=${toneOfEvent(kind)} data-kind=${kind}>
          <time datetime=${at} title=${at}>${offset(seconds(at) - start, isShort)}</time><i aria-hidden="true"></i>
          <${EventText} worker=${worker} text=${text} />
        </li>`,
      )}
    </ol>`;
}

// Shows the first line; the other lines, a traceback, can be expanded.
function EventText({ worker, text }) {
  const [first] = text.split("\n", 1);
  const isLong = text.length > first.length;
  return html`<div>
    <p>${worker && html`<strong><bdi>${worker}</bdi></strong> `}<bdi>${first}</bdi></p>
    ${isLong && html`<details><summary>Traceback</summary><pre class="block" tabindex="0">${text}</pre></details>`}
  </div>`;
}

// With milliseconds if all events happened within a minute.
function offset(elapsed, isShort) {
  if (elapsed <= 0) return "0 s";
  return isShort ? `+${elapsed.toFixed(3)} s` : `+${duration(elapsed)}`;
}

function Facts({ job }) {
  const schedule = scheduleOf(job);
  const facts = [
    ["Queue", html`<a href=${linkTo("jobs", null, { queue: job.queue })}><bdi>${job.queue}</bdi></a>`],
    ["Attempts", `${job.attempts} of ${job.max_attempts}`],
    ["Fencing token", html`<${Token} value=${job.token || null} />`],
    ["Priority", job.priority],
    ["Created", html`<${Timestamp} at=${job.created_at} />`],
    job.waits_for && ["Waits for limit", html`<a href=${linkTo("limits", limitOf(job.waits_for))}><bdi>${job.waits_for}</bdi></a>`],
    job.state === "queued" && [job.waits_for ? "Due since" : "Due", html`<${Timestamp} at=${job.next_run_at} />`],
    job.finished_at && ["Ended", html`<${Timestamp} at=${job.finished_at} />`],
    job.failed_reason && ["Failed because", humanize(job.failed_reason)],
    job.lease_owner && [job.state === "running" ? "Held by" : "Last held by", job.lease_owner],
    job.state === "running" && job.lease_expires_at && ["Lease until", html`<${Timestamp} at=${job.lease_expires_at} />`],
    job.scheduled_for && ["Planned for", html`<${Timestamp} at=${job.scheduled_for} />`],
    schedule && ["Schedule", html`<${ScheduleLink} name=${schedule} />`],
    job.tags.length > 0 && ["Tags", job.tags.map((tag, index) => html`${index > 0 && ", "}<a href=${linkTo("jobs", null, { tag })}>${tag}</a>`)],
    job.idempotency_key && ["Idempotency key", job.idempotency_key],
    job.unique_key && ["Unique key", job.unique_key],
  ].filter(Boolean);
  return html`<section class="card">
    <div class="card-head"><h2>Details</h2></div>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><bdi>${value}</bdi></dd></div>`)}</dl>
  </section>`;
}

// A limit key is a limit's name, and for a limit with keys also the value: key:customer=42.
function limitOf(limitKey) {
  return limitKey.split("=", 1)[0];
}

const SCHEDULE_KEY = /^schedule:(.+):\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/;

// The key of a job that a schedule enqueued has the schedule's name and the planned time. A name may have colons.
function scheduleOf({ scheduled_for: plannedAt, idempotency_key: key }) {
  return plannedAt && SCHEDULE_KEY.exec(key)?.[1];
}

// The inspector omits values that are too large for a page.
function Json({ title, text, bytes }) {
  if (text != null) return html`<${Block} title=${title} text=${indentJson(text)} isJson />`;
  const notice = `This value has ${count(bytes)} bytes and is too large for this page. To see it, run: faultline jobs show`;
  return html`<${Block} title=${title} text=${notice} />`;
}

function Block({ title, text, tone, isJson }) {
  const [isExpanded, setIsExpanded] = useState(false);
  const isLong = text.length > MAX_CHARACTERS && !isExpanded;
  const shown = isLong ? text.slice(0, MAX_CHARACTERS) : text;
  return html`<section class="card">
    <div class="card-head"><h2>${title}</h2></div>
    <pre class="block" data-tone=${tone} tabindex="0" aria-label=${title}>${isJson ? html`<${JsonView} text=${shown} />` : shown}</pre>
    ${isLong &&
    html`<button class="button" data-kind="quiet" type="button" onClick=${() => setIsExpanded(true)}>
      Show all ${count(text.length)} characters
    </button>`}
  </section>`;
}
