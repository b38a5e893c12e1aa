// What a limit allows, in words, and the buttons that change and reset it.
import { count, duration } from "../format.js";
import { html } from "../html.js";
import { ActionButton } from "./action.js";

export function limitInWords({ name, max_running: most, rate }) {
  const each = name.startsWith("key:") ? " for each key" : "";
  const parts = [];
  if (most === 0) parts.push("no job starts");
  else if (most != null) parts.push(`at most ${count(most)} at once${each}`);
  if (rate) {
    const burst = rate.burst > 1 ? `, ${count(rate.burst)} of them at once` : "";
    parts.push(`${count(rate.jobs)} in ${duration(rate.seconds)}${each}${burst}`);
  }
  return parts.join("; ");
}

// 2 of 3. Each key of a limit with keys has places of its own.
export function placesInWords({ name, running, max_running: most }) {
  return most == null || name.startsWith("key:") ? count(running) : `${count(running)} of ${count(most)}`;
}

const FIELDS = [
  { name: "max_running", label: "Jobs at once", least: 0 },
  { name: "jobs", label: "Jobs in a period", least: 1 },
  { name: "seconds", label: "Seconds of the period", least: 0.001, step: "any" },
  { name: "burst", label: "Of them at once", least: 1 },
];

export function ChangeLimit({ limit, size, onDone }) {
  const { name, max_running: most, rate } = limit;
  const values = { max_running: most, jobs: rate?.jobs, seconds: rate?.seconds, burst: rate?.burst };
  const fields = FIELDS.map((field) => ({ ...field, value: values[field.name] ?? "" }));
  return html`<${ActionButton} action="set-limit" body=${{ name }} fields=${fields} bodyOf=${bodyOf} label="Change" subject=${name}
    size=${size} onDone=${onDone}
    text="These are the whole limit: an empty field limits nothing, and 0 jobs at once starts none. Running jobs continue. The values stay until the limit is reset, also if the code declares others." />`;
}

function bodyOf(body, { max_running: most, jobs, seconds, burst }) {
  const rate = jobs === "" && seconds === "" ? null : { jobs: Number(jobs), seconds: Number(seconds), burst: Number(burst || 1) };
  return { ...body, max_running: most === "" ? null : Number(most), rate };
}

// The values of the code apply already unless an operator has changed them.
export function ResetLimit({ limit: { name, changed_by: by, is_declared: isDeclared }, size, onDone }) {
  if (by !== "operator") return null;
  const text = isDeclared
    ? "The values that the code declares apply again."
    : "No code declares this limit, so it is removed, and its waiting jobs become due.";
  return html`<${ActionButton} action="reset-limit" body=${{ name }} label=${isDeclared ? "Reset" : "Remove"} subject=${name}
    size=${size} isDangerous onDone=${onDone} text=${text} />`;
}
