// Why a job waits, where it runs or why it failed, with advice: the same answer as `faultline why`.
import { html } from "../html.js";
import { capitalize, sentence } from "../format.js";
import { Severity } from "../parts/severity.js";

const TITLES = { queued: "Why this job waits", running: "Where this job runs", failed: "Why this job failed" };
const LEVELS = {
  no_worker: "problem",
  unattended: "problem",
  server_changed: "problem",
  failed: "problem",
  queue_paused: "warning",
  limit_stopped: "warning",
  locked: "warning",
  worker_lost: "warning",
  lease_expired: "warning",
};

export function JobWhy({ job: { state, why } }) {
  if (!why || !TITLES[state]) return null;
  return html`<section class="card why" aria-label=${TITLES[state]}>
    <div class="card-head"><h2>${TITLES[state]}</h2><${Severity} level=${LEVELS[why.code] ?? "note"} /></div>
    <p class="why-answer"><bdi>${sentence(withoutError(why.answer))}</bdi></p>
    ${why.advice.length > 0 &&
    html`<ul class="advice">${why.advice.map((text, index) => html`<li key=${index}><bdi>${capitalize(text)}</bdi></li>`)}</ul>`}
  </section>`;
}

// The page shows the last error separately, with all its lines.
function withoutError(answer) {
  return answer.split("; last error: ", 1)[0];
}
