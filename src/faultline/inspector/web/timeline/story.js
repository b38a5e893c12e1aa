// What a timeline says, in one sentence. Pure.
import { count, plural, words } from "../format.js";

// → {text, tone}, or null for a job that waits: the job page says why it does.
export function verdictOf({ state, attempts, rejections, ledger }, failedReason) {
  const takeovers = attempts.filter(({ outcome }) => outcome === "expired" || outcome === "worker_lost").length;
  if (rejections.length) return { text: refusedStory(rejections, ledger), tone: ledger ? "good" : "bad" };
  if (ledger) {
    const effect = `It took effect once, under token ${ledger.token}`;
    const story = takeovers ? `${effect}, after it was taken from a worker ${times(takeovers)}.` : `${effect}.`;
    return { text: story, tone: "good" };
  }
  if (state === "failed") {
    return { text: `It will not run again: ${words(failedReason ?? "failed")}. It had no effect.`, tone: "bad" };
  }
  if (state === "running") return { text: `It is running, under token ${attempts.at(-1)?.token}.`, tone: "accent" };
  if (!attempts.length) return null;
  return { text: `It had no effect in ${plural(attempts.length, "attempt")}, and will run again.`, tone: "plain" };
}

function refusedStory(rejections, ledger) {
  const [first] = rejections;
  const who =
    rejections.length === 1
      ? `The late commit of ${first.worker} under token ${first.stale_token} was refused by PostgreSQL.`
      : `${count(rejections.length)} late commits were refused by PostgreSQL.`;
  return ledger ? `${who} The job took effect once, under token ${ledger.token}.` : who;
}

function times(number) {
  return number === 1 ? "once" : `${count(number)} times`;
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
