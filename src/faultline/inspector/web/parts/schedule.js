// A schedule's times and expression in words, and the buttons that pause, resume and run it.
import { duration, plannedTime } from "../format.js";
import { html } from "../html.js";
import { linkTo } from "../router.js";
import { ActionButton } from "./action.js";

export function expressionInWords({ cron, every_seconds: seconds }) {
  return cron ?? `every ${duration(seconds)}`;
}

export function ScheduleLink({ name }) {
  return html`<a href=${linkTo("schedules", name)}><bdi>${name}</bdi></a>`;
}

// A time of the schedule, as the clocks of its zone show it.
export function PlannedTime({ at }) {
  if (at == null) return html`<span class="zero">–</span>`;
  return html`<time datetime=${at} title=${at}>${plannedTime(at)}</time>`;
}

// "in 5 min", or how late it is.
export function untilInWords(seconds) {
  return seconds < 0 ? `${duration(-seconds)} late` : `in ${duration(seconds)}`;
}

export function NextFiring({ schedule: { next_at: at, next_in_seconds: seconds } }) {
  if (at == null) return html`<${PlannedTime} />`;
  return html`<span><${PlannedTime} at=${at} /><span class="sub">${untilInWords(seconds)}</span></span>`;
}

export function ScheduleActions({ schedule: { name, paused_at: pausedAt, task }, size, onDone }) {
  const body = { schedule: name };
  return html`
    ${pausedAt
      ? html`<${ActionButton} action="resume-schedule" body=${body} label="Resume" subject=${name} size=${size} onDone=${onDone}
          text="It fires at its first planned time from now on. Times that passed while it was paused never fire." />`
      : html`<${ActionButton} action="pause-schedule" body=${{ ...body, reason: "paused in the dashboard" }} label="Pause"
          subject=${name} size=${size} isDangerous onDone=${onDone}
          text="It does not fire until it is resumed, and planned times that pass meanwhile never fire. Jobs that it enqueued before run." />`}
    <${ActionButton} action="run-schedule" body=${body} label="Run now" subject=${name} size=${size} onDone=${onDone}
      text=${html`A job of the task <bdi>${task}</bdi> is enqueued at once. The planned times stay as they are.`} />
  `;
}
