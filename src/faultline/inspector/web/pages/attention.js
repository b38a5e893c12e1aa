// The list of problems on the overview: one sentence with links for each, the most severe first.
import { compact, count, duration, plural, sentence } from "../format.js";
import { html } from "../html.js";
import { UpdateButton, useFrozenOrder } from "../parts/frozen_order.js";
import { ScheduleLink } from "../parts/schedule.js";
import { Severity } from "../parts/severity.js";
import { Timestamp } from "../parts/timestamp.js";
import { linkTo } from "../router.js";

const LONG_WAIT_SECONDS = 60; // for the oldest due job of a queue that has workers
const MAX_OF_EACH_KIND = 5;
const RANKS = { problem: 0, warning: 1, note: 2 };
// Reasons of the stale-write risk that the lists of the overview do not contain.
const RISKS = {
  leases_not_taken_back: { level: "problem", page: "leases" },
  stale_writes_refused: { level: "warning", page: "rejections" },
};

export function Attention({ overview }) {
  const findings = findingsOf(overview);
  const frozen = useFrozenOrder(findings, ({ key }) => key, "attention");
  return html`<section class="card attention" aria-label="What needs attention" ref=${frozen.ref}>
    <${UpdateButton} update=${frozen.update} />
    ${frozen.shown.length
      ? html`<h2 class="visually-hidden">What needs attention</h2>
          <ul>${frozen.shown.map(
            (finding) => html`<li key=${finding.key} data-level=${finding.level} data-gone=${frozen.isGone(finding) ? "" : undefined}>
              <${Severity} level=${finding.level} /><div>${finding.text}</div>
            </li>`,
          )}</ul>`
      : html`<p class="no-findings"><${Severity} level="fine" /><span>No problems found: every queue with due jobs has a live
          worker, no job failed in the last day, no worker is lost or silent, and no schedule is overdue.</span></p>`}
  </section>`;
}

// → [{key, level, text}]
export function findingsOf({ attention, risk }) {
  const unserved = attention.unserved_queues;
  const names = new Set(unserved.map(({ queue }) => queue));
  const waiting = attention.oldest_due.filter(
    ({ queue, oldest_due_seconds: oldest }) => !names.has(queue) && oldest >= LONG_WAIT_SECONDS,
  );
  const found = [
    ...firstOf(unserved, unservedQueue, "queues", "queues without a live worker"),
    ...firstOf(waiting, waitingQueue, "queues", "queues with a long wait"),
    ...firstOf(attention.failures, failure, "jobs", "kinds of failure", { state: "failed" }),
    ...firstOf(attention.lost_workers, missingWorker, "workers", "workers that are lost or silent"),
    ...firstOf(attention.schedules, wrongSchedule, "schedules", "schedules that are failing, overdue or undeclared"),
    ...risk.reasons.filter(({ code }) => RISKS[code]).map(riskReason),
  ];
  return found.sort((a, b) => RANKS[a.level] - RANKS[b.level]); // the sort is stable: within a level the order above stays
}

function firstOf(items, describe, page, what, query) {
  const findings = items.slice(0, MAX_OF_EACH_KIND).map(describe);
  const rest = items.length - MAX_OF_EACH_KIND;
  if (rest <= 0) return findings;
  const text = html`<a href=${linkTo(page, null, query)}>And ${count(rest)} more ${what}</a>`;
  return [...findings, { key: `more ${what}`, level: findings.at(-1).level, text }];
}

function Queue({ name, state = "queued" }) {
  return html`<a href=${linkTo("jobs", null, { queue: name, state })}><bdi>${name}</bdi></a>`;
}

function dueJobs({ due, due_is_exact: isExact }) {
  const number = isExact ? plural(due, "job") : `about ${compact(due)} jobs`;
  return `${number} ${due === 1 ? "is" : "are"} due`;
}

function unservedQueue(row) {
  return {
    key: `unserved ${row.queue}`,
    level: "problem",
    text: html`<p>No live worker serves the queue <${Queue} name=${row.queue} />: ${dueJobs(row)}, the oldest
      for ${duration(row.oldest_due_seconds)}.</p>
      <p class="quiet">Start a worker: <code>faultline worker --app MODULE:NAME --queues <bdi>${row.queue}</bdi></code>.${" "}
        Or check the <a href=${linkTo("workers")}>workers</a>.</p>`,
  };
}

function waitingQueue(row) {
  const wait = duration(row.oldest_due_seconds);
  const text = row.paused
    ? html`<p>The queue <${Queue} name=${row.queue} /> is <a href=${linkTo("queues")}>paused</a>: ${dueJobs(row)},
        the oldest for ${wait}.</p>`
    : html`<p>The oldest due job of the queue <${Queue} name=${row.queue} /> has waited for ${wait}: ${dueJobs(row)}.</p>
        <p class="quiet">Its workers are stuck or too few: check the${" "}
          <a href=${linkTo("workers")}>workers</a>, and start more if they are busy.</p>`;
  return { key: `waiting ${row.queue}`, level: row.paused ? "note" : "warning", text };
}

function failure({ task, error, count: number, newest_at: at, newest_job_id: id, newest_error: message }) {
  return {
    key: `failure ${task} ${error}`,
    level: "problem",
    text: html`<p>${plural(number, "job")} of the task${" "}
        <a href=${linkTo("jobs", null, { state: "failed", task })}><bdi>${task}</bdi></a> failed
        with <bdi>${error}</bdi>, <a href=${linkTo("jobs", id)}>the newest</a> at <${Timestamp} at=${at} />.</p>
      ${message && html`<p class="quiet clip"><bdi>${message}</bdi></p>`}`,
  };
}

function missingWorker({ id, host, status, running, last_heartbeat_at: at }) {
  const holds = running ? `, and still holds ${plural(running, "job")}` : "";
  return {
    key: `worker ${id}`,
    level: status === "lost" && running ? "problem" : "warning",
    text: html`<p>The worker <a href=${linkTo("workers")}><bdi>${id}</bdi></a> on <bdi>${host}</bdi> is ${status}: its last
      heartbeat was at <${Timestamp} at=${at} />${holds}.</p>`,
  };
}

function wrongSchedule({ name, state, late_seconds: late, last_error: error }) {
  const link = html`<${ScheduleLink} name=${name} />`;
  const texts = {
    failing: () => html`<p>The schedule ${link} does not fire: its next time cannot be computed.</p>
      <p class="quiet clip"><bdi>${error}</bdi></p>`,
    overdue: () => html`<p>The schedule ${link} should have fired ${duration(late)} ago.</p>
      <p class="quiet">A worker or a reconciler must run, and lead: check the <a href=${linkTo("workers")}>workers</a>.</p>`,
    undeclared: () => html`<p>Code declared the schedule ${link}, but the code of no live worker does. It still fires.</p>
      <p class="quiet">If it is not needed any more: <code>faultline schedules remove <bdi>${name}</bdi></code></p>`,
  };
  return { key: `schedule ${name} ${state}`, level: state === "undeclared" ? "warning" : "problem", text: texts[state]() };
}

function riskReason({ code, text }) {
  const { level, page } = RISKS[code];
  return { key: code, level, text: html`<p><a href=${linkTo(page)}>${sentence(text)}</a></p>` };
}
