// A job's timeline summarized in one sentence. Pure.
import { count, humanize, plural } from "../format.js";

// → {text, tone}, or null for a job without attempts: the job page says why it waits.
export function summaryOf({ state, attempts, rejections, ledger }, failedReason) {
  const takeovers = attempts.filter(({ outcome }) => outcome === "expired" || outcome === "worker_lost").length;
  if (rejections.length) return { text: refusalSummary(rejections, ledger), tone: ledger ? "good" : "bad" };
  if (ledger) {
    const effect = `The job took effect once, with token ${ledger.token}`;
    const text = takeovers ? `${effect}, after ${plural(takeovers, "takeover")}.` : `${effect}.`;
    return { text, tone: "good" };
  }
  if (state === "failed") {
    return { text: `The job failed (${humanize(failedReason ?? "failed")}) and will not run again. It had no effect.`, tone: "bad" };
  }
  if (state === "running") return { text: `The job is running with token ${attempts.at(-1)?.token}.`, tone: "accent" };
  if (!attempts.length) return null;
  return { text: `The job had no effect in ${plural(attempts.length, "attempt")} and will run again.`, tone: "plain" };
}

function refusalSummary(rejections, ledger) {
  const [first] = rejections;
  const refusal =
    rejections.length === 1
      ? `PostgreSQL refused the stale commit of ${first.worker} with token ${first.stale_token}.`
      : `PostgreSQL refused ${count(rejections.length)} stale commits.`;
  return ledger ? `${refusal} The job took effect once, with token ${ledger.token}.` : refusal;
}

const EVENT_TONES = {
  committed: "good",
  refused: "bad",
  taken_over: "accent",
  claimed: "accent",
  failed: "warn",
  expired: "warn",
  worker_lost: "warn",
};

export function toneOfEvent(kind) {
  return EVENT_TONES[kind] ?? "plain";
}
