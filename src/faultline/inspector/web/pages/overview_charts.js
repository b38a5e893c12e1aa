// The overview's four figures, each with its last minutes.
import { history, live } from "../data/live.js";
import { compact, count, countOrEstimate, duration, rate } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Chart } from "../parts/chart.js";

const FRAME_MS = 1000;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7];
const SPANS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400,
  21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000,
];

// They move on even while nothing happens, so that a flat line is seen to be one.
export function Charts({ overview }) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), FRAME_MS);
    return () => clearInterval(timer);
  }, []);
  const { heardAt } = live.value;
  const passed = heardAt ? Math.max(0, now - heardAt) : 0; // since the database said what time it is
  const chart = { now: (Date.parse(overview.now) + passed) / 1000, start: history.start, version: history.version };
  return html`<div class="grid" data-columns="4">
    <${Throughput} throughput=${overview.throughput} chart=${chart} />
    <${Depth} totals=${overview.totals} chart=${chart} />
    <${Wait} latency=${overview.latency ?? {}} chart=${chart} />
    <${Oldest} seconds=${overview.oldest_due_seconds} chart=${chart} />
  </div>`;
}

function Figure({ title, value, unit, note, children }) {
  return html`<section class="card">
    <h2 class="figure-title">${title}</h2>
    <p class="big">${value}${unit && html` <small>${unit}</small>`}</p>
    <div class="figure-note">${note}</div>
    ${children}
  </section>`;
}

function Throughput({ throughput, chart }) {
  const value = rate(throughput.succeeded_per_second);
  const window = duration(Math.max(1, Math.round(throughput.window_seconds)));
  return html`<${Figure} title="Throughput" value=${value} unit="jobs/s" note=${`over the last ${window}`}>
    <${Chart} ...${chart} label=${`Jobs that succeeded per second, now ${value}`} columns=${history.columns("rate")}
      series=${[{ label: "succeeded", colour: "accent", isFilled: true }]} format=${compact} steps=${WHOLE} />
  <//>`;
}

function Depth({ totals, chart }) {
  const series = [
    { label: "due", colour: "accent", isFilled: true },
    { label: "running", colour: "muted-fill" },
  ];
  return html`<${Figure} title="Depth" value=${countOrEstimate(totals.due, totals.is_exact)} unit="due"
    note=${html`<${Key} first="due" second="running" />`}>
    <${Chart} ...${chart} label=${`Jobs that are due, now ${count(totals.due)}, and running, now ${count(totals.running)}`}
      columns=${history.columns("due", "running")} series=${series} format=${compact} steps=${WHOLE} />
  <//>`;
}

function Wait({ latency, chart }) {
  const median = duration(latency.wait_p50_seconds);
  const series = [
    { label: "median", colour: "accent", isFilled: true },
    { label: "95 %", colour: "muted-fill" },
  ];
  return html`<${Figure} title="Wait for a worker" value=${median} unit="median"
    note=${html`<${Key} first="median" second="95 % wait less" />`}>
    <${Chart} ...${chart} label=${`From due to claimed, of the newest jobs: median now ${median}`}
      columns=${history.columns("wait", "slowWait")} series=${series} format=${duration} least=${0.01} steps=${SPANS} />
  <//>`;
}

function Oldest({ seconds, chart }) {
  const value = seconds == null ? "none" : duration(seconds);
  const note = seconds == null ? "nothing waits" : "has been waiting since it was due";
  return html`<${Figure} title="Oldest due job" value=${value} note=${note}>
    <${Chart} ...${chart} label=${`How long the oldest due job has waited: now ${value}`} columns=${history.columns("oldest")}
      series=${[{ label: "oldest", colour: "accent", isFilled: true }]} format=${duration} least=${1} steps=${SPANS} />
  <//>`;
}

function Key({ first, second }) {
  return html`<span class="chart-key"><span>${first}</span><span data-series="second">${second}</span></span>`;
}
