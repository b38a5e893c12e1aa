// Faultline compared with the control, the same worker on the same tables without the fence, under the same faults.
import { count, duration, humanize, percent, plural } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Provenance } from "./provenance.js";

const SUBJECTS = [
  { name: "naive", title: "Without the fence", about: "the control: same worker, same tables, no fencing" },
  { name: "faultline", title: "Faultline", about: "PostgreSQL refuses stale writes" },
];

export function Comparison({ summary }) {
  const rates = summary.duplicate_rate ?? {};
  const duplicates = { naive: summary.naive_duplicates, faultline: summary.faultline_duplicates };
  const widest = Math.max(0.001, ...Object.values(rates).map(({ wilson_95: [, high] }) => high)) * 1.05;
  return html`<section class="card stack" aria-label="Faultline compared with the control">
    <div class="card-head">
      <h2>Jobs that took effect more than once</h2>
      <${Badge} tone=${summary.verdict === "valid" ? "good" : "bad"} word=${summary.verdict ?? "unknown"} />
    </div>
    <div class="versus">
      ${SUBJECTS.filter(({ name }) => rates[name]).map(
        ({ name, title, about }) => html`<${Row} key=${name} ...${{ title, about, widest }} rate=${rates[name]}
          duplicates=${duplicates[name]} />`,
      )}
    </div>
    <dl class="tally">
      <${Fact} name="stale writes refused" value=${count(summary.stale_writes_prevented)} />
      <${Fact} name="invariants violated" value=${count(summary.invariant_violations)} />
      <${Fact} name="share of jobs with an injected fault" value=${percent(summary.fault_rate)} />
      <${Fact} name="median recovery from a crash" value=${duration(summary.crash_recovery_seconds?.p50)} />
      <${Fact} name="median takeover of a stale lease" value=${duration(summary.stale_takeover_seconds?.p50)} />
    </dl>
    ${(summary.why_not ?? []).map((reason, index) => html`<p key=${index} class="error-text">${reason}</p>`)}
    <${Faults} injected=${summary.faults_injected ?? {}} />
    <${Provenance} facts=${summary} />
  </section>`;
}

function Row({ title, about, rate, duplicates, widest }) {
  const tone = duplicates ? "bad" : "good";
  const [low, high] = rate.wilson_95;
  const shares = { "--share": rate.rate, "--low": low, "--high": high };
  const style = Object.fromEntries(Object.entries(shares).map(([name, share]) => [name, String(share / widest)]));
  return html`<div class="versus-row">
    <div><strong>${title}</strong><span class="sub">${about}</span></div>
    <div class="versus-bar" data-tone=${tone} style=${style} role="img"
      aria-label=${`${percent(rate.rate, 2)}, between ${percent(low, 2)} and ${percent(high, 2)} with 95 % confidence`}>
      <i></i><b></b>
    </div>
    <div><strong>${count(duplicates)} of ${plural(rate.n, "job")}</strong>
      <span class="sub">${percent(rate.rate, 2)} (95 %: ${percent(low, 2)} to ${percent(high, 2)})</span></div>
  </div>`;
}

function Fact({ name, value }) {
  return html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
}

function Faults({ injected }) {
  const kinds = [...new Set(Object.values(injected).flatMap(Object.keys))].sort();
  if (!kinds.length) return null;
  const columns = [
    { label: "Fault injected", cell: (kind) => humanize(kind) },
    ...SUBJECTS.filter(({ name }) => injected[name]).map(({ name, title }) => ({
      label: title,
      kind: "numeric",
      cell: (kind) => count(injected[name][kind] ?? 0),
    })),
  ];
  return html`<${Table} caption="Faults injected" columns=${columns} rows=${kinds} rowKey=${(kind) => kind} />`;
}
