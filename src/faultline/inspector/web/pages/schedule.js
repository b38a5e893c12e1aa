// The page of one schedule: why it does not fire, its settings, its next times, and its newest firings.
import { useResource } from "../data/resource.js";
import { count, duration, plural, sentence, shortId } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../parts/badge.js";
import { ErrorState, Loading } from "../parts/notice.js";
import { expressionInWords, PlannedTime, ScheduleActions, untilInWords } from "../parts/schedule.js";
import { Severity } from "../parts/severity.js";
import { Table } from "../parts/table.js";
import { linkTo } from "../router.js";

const LEVELS = { failing: "problem", overdue: "problem", undeclared: "warning", paused: "warning" };
const POLICIES = {
  skip: () => "only the newest, if it is at most a minute late",
  once: () => "only the newest",
  all: (limit) => `the newest ${count(limit)}, oldest first`,
};
const OUTCOMES = { fired: "good", skipped: "warn", manual: "accent" };
const FIRINGS = [
  { label: "Planned", cell: ({ planned_at: at }) => html`<${PlannedTime} at=${at} />` },
  { label: "Outcome", cell: (firing) => html`<${Outcome} firing=${firing} />` },
  { label: "Fired", cell: ({ fired_at: at }) => html`<${PlannedTime} at=${at} />` },
  {
    label: "Job",
    cell: ({ job_id: id }) => id && html`<a class="job-id" href=${linkTo("jobs", id)} title=${id}>${shortId(id)}</a>`,
  },
];

export function Schedule({ name }) {
  const schedule = useResource(`schedules/${encodeURIComponent(name)}`);
  if (!schedule.data || (schedule.error && !schedule.error.isOutage)) {
    return html`<h1 tabindex="-1">Schedule</h1>
      ${schedule.error ? html`<${ErrorState} error=${schedule.error} onRetry=${schedule.reload} />` : html`<${Loading} rows=${5} />`}
      <p><a href=${linkTo("schedules")}>All schedules</a></p>`;
  }
  const { state, firings, notes, upcoming } = schedule.data;
  return html`
    <header class="job-title">
      <h1 tabindex="-1"><bdi>${name}</bdi></h1>
      <${Badge} word=${state} />
      <div class="job-actions"><${ScheduleActions} schedule=${schedule.data} onDone=${schedule.reload} /></div>
    </header>
    ${notes.length > 0 && html`<${Notes} notes=${notes} state=${state} />`}
    <${Facts} schedule=${schedule.data} />
    ${upcoming.length > 0 && html`<${Upcoming} schedule=${schedule.data} />`}
    ${firings.length > 0 &&
    html`<${Table} caption="Newest firings" columns=${FIRINGS} rows=${firings} rowKey=${({ planned_at: at }) => at} />`}
  `;
}

function Notes({ notes, state }) {
  return html`<section class="card why" aria-label="What to know about this schedule">
    <div class="card-head"><h2>What to know</h2><${Severity} level=${LEVELS[state] ?? "note"} /></div>
    ${notes.map((note, index) => html`<p key=${index} class="why-answer"><bdi>${sentence(note)}</bdi></p>`)}
  </section>`;
}

function Facts({ schedule }) {
  const { missed, missed_limit: limit, queue, task, jitter_seconds: jitter, last_job_id: job } = schedule;
  const facts = [
    ["When", expressionInWords(schedule)],
    ["Time zone", schedule.time_zone],
    ["Task", html`<a href=${linkTo("jobs", null, { task })}><bdi>${task}</bdi></a>`],
    ["Queue", html`<a href=${linkTo("jobs", null, { queue })}><bdi>${queue}</bdi></a>`],
    ["Priority", schedule.priority],
    ["Attempts of each job", schedule.max_attempts],
    ["If several times are due, fires", POLICIES[missed](limit)],
    jitter > 0 && ["Delay of each job", `up to ${duration(jitter)}`],
    ["Last firing", html`<${PlannedTime} at=${schedule.last_planned_at} />`],
    job && ["Newest job", html`<a href=${linkTo("jobs", job)} title=${job}>${shortId(job)}</a>`],
    ["Declared by", schedule.declared_by === "operator" ? "an operator" : "the code"],
    ["Changes", html`<a href=${linkTo("audit", null, { object: `schedule ${schedule.name}` })}>in the audit log</a>`],
  ].filter(Boolean);
  return html`<section class="card">
    <div class="card-head"><h2>Details</h2></div>
    <dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><bdi>${value}</bdi></dd></div>`)}</dl>
  </section>`;
}

function Upcoming({ schedule: { upcoming, next_in_seconds: seconds, time_zone: zone } }) {
  return html`<section class="card">
    <div class="card-head"><h2>Next times</h2><span class="quiet"><bdi>${zone}</bdi></span></div>
    <ol class="list">${upcoming.map(
      (at, index) => html`<li key=${at}>
        <${PlannedTime} at=${at} />
        <span class="quiet">${index === 0 && untilInWords(seconds)}</span>
      </li>`,
    )}</ol>
  </section>`;
}

function Outcome({ firing: { outcome, skipped } }) {
  return html`<span>
    <${Badge} word=${outcome} tone=${OUTCOMES[outcome]} />
    ${skipped > 1 && html`<span class="sub">${plural(skipped, "time")}</span>`}
  </span>`;
}
