// One job: what it is, what happened to it, and what an operator may do about it.
import { useResource } from "../data/resource.js";
import { count, duration, shortId, words } from "../format.js";
import { html, useState } from "../html.js";
import { layOutJson } from "../json_text.js";
import { Action } from "../parts/action.js";
import { Badge, Token } from "../parts/badge.js";
import { Moment } from "../parts/ident.js";
import { IsolatedJson } from "../parts/isolated.js";
import { Failure, Loading } from "../parts/notice.js";
import { linkTo } from "../router.js";
import { Timeline } from "../timeline/drawing.js";
import { seconds } from "../timeline/layout.js";
import { toneOfEvent, verdictOf } from "../timeline/story.js";
import { Why } from "./job_why.js";

const LONGEST_SHOWN = 20_000;
const EVENTS_SHOWN = 60;

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
      ${job.error ? html`<${Failure} error=${job.error} onRetry=${reload} />` : html`<${Loading} rows=${5} />`}
      <p><a href=${linkTo("jobs")}>All jobs</a></p>`;
  }
  return html`
    <${Title} job=${job.data} onDone=${reload} />
    <${Why} job=${job.data} />
    ${timeline.data && html`<${Story} timeline=${timeline.data} job=${job.data} />`}
    <${Facts} job=${job.data} />
    <${Texts} job=${job.data} />
  `;
}

function Texts({ job }) {
  const tone = job.state === "failed" ? "bad" : "plain"; // of a job that went on, an error is history
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
      ? "The job fails now. The worker that runs it loses the lease, and its commit will be refused."
      : "The job will not run.";
  return html`<header class="job-title">
    <h1 tabindex="-1"><bdi>${task}</bdi></h1>
    <${Badge} word=${state} />
    <div class="job-actions">
      ${state === "failed" &&
      html`<${Action} action="retry" body=${{ job_id: id }} label="Retry job" subject=${subject} onDone=${onDone}
        text="The job is queued again, with all its attempts. Its token goes on from where it is." />`}
      ${(state === "queued" || state === "running") &&
      html`<${Action} action="cancel" body=${{ job_id: id }} label="Cancel job" subject=${subject} isDangerous
        onDone=${onDone} text=${cancelling} />`}
    </div>
    <p class="ident quiet">${id}</p>
  </header>`;
}

function Story({ timeline, job }) {
  const verdict = verdictOf(timeline, job.failed_reason);
  const hasAttempts = timeline.attempts.length > 0 || timeline.rejections.length > 0;
  return html`<section class="card">
    <div class="card-head"><h2>Timeline</h2></div>
    ${verdict && html`<p class="verdict" data-tone=${verdict.tone}><bdi>${verdict.text}</bdi></p>`}
    ${hasAttempts && html`<${Timeline} timeline=${timeline} summary=${verdict?.text ?? "Its attempts"} />`}
    <${Events} timeline=${timeline} />
  </section>`;
}

function Events({ timeline }) {
  const [isWhole, setIsWhole] = useState(false);
  const { events } = timeline;
  const hidden = isWhole ? 0 : Math.max(0, events.length - EVENTS_SHOWN);
  const start = seconds(timeline.created_at);
  const isShort = seconds(events.at(-1).at) - start < 60;
  return html`
    ${hidden > 0 &&
    html`<button class="button" data-kind="quiet" data-size="small" type="button" onClick=${() => setIsWhole(true)}>
      Show ${hidden} earlier events
    </button>`}
    <ol class="story" aria-label="What happened, in order">
      ${events.slice(hidden).map(
        ({ at, kind, worker, text }, index) => html`<li key=${index} data-tone=${toneOfEvent(kind)} data-kind=${kind}>
          <time datetime=${at} title=${at}>${offset(seconds(at) - start, isShort)}</time><i aria-hidden="true"></i>
          <${EventText} worker=${worker} text=${text} />
        </li>`,
      )}
    </ol>`;
}

// A traceback keeps its lines, behind its first one.
function EventText({ worker, text }) {
  const [first] = text.split("\n", 1);
  const isLong = text.length > first.length;
  return html`<div>
    <p>${worker && html`<strong><bdi>${worker}</bdi></strong> `}<bdi>${first}</bdi></p>
    ${isLong && html`<details><summary>Traceback</summary><pre class="block" tabindex="0">${text}</pre></details>`}
  </div>`;
}

// Where all happens within a minute, the order of milliseconds is the story.
function offset(elapsed, isShort) {
  if (elapsed <= 0) return "0 s";
  return isShort ? `+${elapsed.toFixed(3)} s` : `+${duration(elapsed)}`;
}

function Facts({ job }) {
  const facts = [
    ["Queue", html`<a href=${linkTo("jobs", null, { queue: job.queue })}><bdi>${job.queue}</bdi></a>`],
    ["Attempts", `${job.attempts} of ${job.max_attempts}`],
    ["Fencing token", html`<${Token} value=${job.token || null} />`],
    ["Priority", job.priority],
    ["Created", html`<${Moment} at=${job.created_at} />`],
    job.state === "queued" && ["Due", html`<${Moment} at=${job.next_run_at} />`],
    job.finished_at && ["Ended", html`<${Moment} at=${job.finished_at} />`],
    job.failed_reason && ["Failed because", words(job.failed_reason)],
    job.lease_owner && [job.state === "running" ? "Held by" : "Last held by", job.lease_owner],
    job.state === "running" && job.lease_expires_at && ["Lease until", html`<${Moment} at=${job.lease_expires_at} />`],
    job.idempotency_key && ["Idempotency key", job.idempotency_key],
  ].filter(Boolean);
  return html`<section class="card">
    <div class="card-head"><h2>Details</h2></div>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><bdi>${value}</bdi></dd></div>`)}</dl>
  </section>`;
}

// The inspector leaves out what is too large for a page.
function Json({ title, text, bytes }) {
  if (text != null) return html`<${Block} title=${title} text=${layOutJson(text)} isJson />`;
  const words = `${count(bytes)} bytes: too large to be shown here. See: faultline jobs show`;
  return html`<${Block} title=${title} text=${words} />`;
}

function Block({ title, text, tone, isJson }) {
  const [isWhole, setIsWhole] = useState(false);
  const isLong = text.length > LONGEST_SHOWN && !isWhole;
  const shown = isLong ? text.slice(0, LONGEST_SHOWN) : text;
  return html`<section class="card">
    <div class="card-head"><h2>${title}</h2></div>
    <pre class="block" data-tone=${tone} tabindex="0" aria-label=${title}>${isJson ? html`<${IsolatedJson} text=${shown} />` : shown}</pre>
    ${isLong &&
    html`<button class="button" data-kind="quiet" type="button" onClick=${() => setIsWhole(true)}>
      Show all ${count(text.length)} characters
    </button>`}
  </section>`;
}
