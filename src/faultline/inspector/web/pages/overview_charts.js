// The four charts of the overview: throughput, depth, wait and oldest due job.
import { history, live } from "../data/live.js";
import { compact, count, countOrEstimate, duration, rate } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Chart } from "../parts/chart.js";

const REDRAW_MS = 1000;
const COUNT_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7];
const DURATION_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400,
  21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000,
];

// Redraws every second even without events, so that an idle queue shows a moving flat line.
export function Charts({ overview }) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), REDRAW_MS);
    return () => clearInterval(timer);
  }, []);
  const { receivedAt } = live.value;
  const elapsed = receivedAt ? Math.max(0, now - receivedAt) : 0; // since the database reported its time
  const chart = { now: (Date.parse(overview.now) + elapsed) / 1000, start: history.start, version: history.version };
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
    <${Chart} ...${chart} label=${`Jobs succeeded per second. Now: ${value}.`} columns=${history.columns("rate")}
      series=${[{ label: "succeeded", colour: "accent", isFilled: true }]} format=${compact} steps=${COUNT_STEPS} />
  <//>`;
}

function Depth({ totals, chart }) {
  const series = [
    { label: "due", colour: "accent", isFilled: true },
    { label: "running", colour: "muted-fill" },
  ];
  return html`<${Figure} title="Queue depth" value=${countOrEstimate(totals.due, totals.is_exact)} unit="due"
    note=${html`<${Key} first="due" second="running" />`}>
    <${Chart} ...${chart} label=${`Jobs due and running. Now due: ${count(totals.due)}, running: ${count(totals.running)}.`}
      columns=${history.columns("due", "running")} series=${series} format=${compact} steps=${COUNT_STEPS} />
  <//>`;
}

function Wait({ latency, chart }) {
  const median = duration(latency.wait_p50_seconds);
  const series = [
    { label: "median", colour: "accent", isFilled: true },
    { label: "95th percentile", colour: "muted-fill" },
  ];
  return html`<${Figure} title="Wait for a worker" value=${median} unit="median"
    note=${html`<${Key} first="median" second="95th percentile" />`}>
    <${Chart} ...${chart} label=${`Time from due to claimed, of the newest jobs. Median now: ${median}.`}
      columns=${history.columns("wait", "slowWait")} series=${series} format=${duration} least=${0.01} steps=${DURATION_STEPS} />
  <//>`;
}

function Oldest({ seconds, chart }) {
  const value = seconds == null ? "none" : duration(seconds);
  const note = seconds == null ? "No job is due." : "since it was due";
  return html`<${Figure} title="Oldest due job" value=${value} note=${note}>
    <${Chart} ...${chart} label=${`How long the oldest due job has waited. Now: ${value}.`} columns=${history.columns("oldest")}
      series=${[{ label: "oldest", colour: "accent", isFilled: true }]} format=${duration} least=${1} steps=${DURATION_STEPS} />
  <//>`;
}

function Key({ first, second }) {
  return html`<span class="chart-key"><span>${first}</span><span data-series="second">${second}</span></span>`;
}
