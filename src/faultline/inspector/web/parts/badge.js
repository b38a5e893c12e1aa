// A word on a coloured ground. The word alone carries the meaning.
import { html } from "../html.js";
import { humanize } from "../format.js";

const TONES = {
  // jobs
  queued: "plain",
  waiting: "warn", // for a limit
  running: "accent",
  succeeded: "good",
  failed: "bad",
  // workers
  alive: "good",
  draining: "warn",
  silent: "warn",
  lost: "bad",
  // risk
  low: "good",
  medium: "warn",
  high: "bad",
  // queues
  paused: "warn",
  open: "good",
  // schedules
  active: "good",
  failing: "bad",
  overdue: "bad",
  undeclared: "warn",
};

export function toneOf(word) {
  return TONES[word] ?? "plain";
}

export function Badge({ word, tone = toneOf(word), children }) {
  return html`<span class="badge" data-tone=${tone}>${children ?? humanize(word)}</span>`;
}

export function Token({ value, tone }) {
  if (value == null) return html`<span class="zero">–</span>`;
  return html`<span class="token" data-tone=${tone} title="fencing token">${value}</span>`;
}
