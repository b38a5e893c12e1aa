// The benchmark: Faultline's targets, and every figure compared with other queues.
import { compact, humanize } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Provenance } from "./provenance.js";

const OWN = "faultline";

const TARGET_COLUMNS = [
  { label: "Reached", kind: "tight", cell: ({ reached }) => html`<${Badge} tone=${TONES[reached]} word=${WORDS[reached]} />` },
  { label: "Target", cell: ({ what, against }) => html`<span>${what}<span class="sub">compared with ${against}</span></span>` },
  { label: "Required", kind: "numeric", cell: ({ wanted }) => wanted },
  {
    label: "Measured",
    kind: "numeric",
    cell: ({ measured, unit }) => (measured == null ? html`<span class="zero">–</span>` : withUnit(measured, unit)),
  },
];
const TONES = { true: "good", false: "bad", null: "plain" };
const WORDS = { true: "reached", false: "missed", null: "not measured" };

export function Performance({ summary }) {
  const targets = [...(summary.to_reach ?? [])].sort((a, b) => (a.reached == null) - (b.reached == null));
  const figures = Object.entries(summary.figures ?? {});
  return html`<section class="card stack" aria-label="Performance compared with other queues">
    <div class="card-head"><h2>Performance compared with other queues</h2></div>
    ${targets.length > 0 &&
    html`<${Table} caption="Performance targets" columns=${TARGET_COLUMNS} rows=${targets}
      rowKey=${({ what, against }) => what + against} />`}
    ${figures.length > 0 &&
    html`<details>
      <summary>All figures, compared with each queue</summary>
      <div class="grid" data-columns="2">
        ${figures.map(
          ([name, figure]) => html`<${Figure} key=${name} name=${name} figure=${figure} peers=${summary.peers ?? {}} />`,
        )}
      </div>
    </details>`}
    <${Provenance} facts=${summary} />
  </section>`;
}

function Figure({ name, figure, peers }) {
  const rows = Object.entries(figure.peers).map(([peer, { median }]) => ({ peer, value: median }));
  rows.sort((a, b) => (figure.higher_is_better ? b.value - a.value : a.value - b.value));
  const widest = Math.max(...rows.map(({ value }) => value), 1e-9);
  return html`<div>
    <h3 class="peers-title">${humanize(name)}${" "}
      <small>${figure.unit}, ${figure.higher_is_better ? "more" : "less"} is better</small></h3>
    <div class="peers">
      ${rows.map(({ peer, value }) => {
        const own = peer === OWN ? "" : undefined;
        return html`<span key=${`${peer}-name`} data-own=${own}>${peers[peer]?.title ?? peer}</span>
          <span key=${`${peer}-bar`} class="meter" data-own=${own} style=${{ "--share": String(value / widest) }}
            aria-hidden="true"><i></i></span>
          <span key=${`${peer}-value`} data-own=${own} class="numeric">${number(value)}</span>`;
      })}
    </div>
  </div>`;
}

function withUnit(value, unit) {
  return unit === "×" ? `${number(value)}×` : `${number(value)} ${unit}`;
}

function number(value) {
  return Math.abs(value) >= 100 ? compact(value) : String(Number(value.toPrecision(3)));
}
