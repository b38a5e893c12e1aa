// Why a job does not run, or what became of it: the answer of `faultline why`, with what to do about it.
import { html } from "../html.js";
import { sentence } from "../format.js";
import { Severity } from "../parts/severity.js";

const TITLES = { queued: "Why it waits", running: "Where it runs", failed: "Why it failed" };
const LEVELS = {
  no_worker: "problem",
  unattended: "problem",
  server_changed: "problem",
  failed: "problem",
  queue_paused: "warning",
  locked: "warning",
  worker_lost: "warning",
  lease_expired: "warning",
};

export function Why({ job: { state, why } }) {
  if (!why || !TITLES[state]) return null;
  return html`<section class="card why" aria-label=${TITLES[state]}>
    <div class="card-head"><h2>${TITLES[state]}</h2><${Severity} level=${LEVELS[why.code] ?? "note"} /></div>
    <p class="why-answer"><bdi>${sentence(withoutError(why.answer))}</bdi></p>
    ${why.advice.length > 0 &&
    html`<ul class="advice">${why.advice.map((text, index) => html`<li key=${index}><bdi>${text}</bdi></li>`)}</ul>`}
  </section>`;
}

// The last error has a block of its own on this page, with its lines.
function withoutError(answer) {
  return answer.split("; last error: ", 1)[0];
}
