// What drills and benchmarks found, as far as their summaries lie where the inspector looks.
import { useResource } from "../data/resource.js";
import { html } from "../html.js";
import { Heading } from "../parts/heading.js";
import { Empty, Shown } from "../parts/notice.js";
import { Comparison } from "../reports/comparison.js";
import { Performance } from "../reports/performance.js";

const VIEWS = { benchmark_summary: Comparison, performance: Performance };

export function Reports() {
  const reports = useResource("reports", { isLive: false });
  return html`
    <${Heading} title="Reports">Measured on the machine that is named below each: nothing here is written by hand.<//>
    <${Shown} resource=${reports} rows=${4}>
      ${({ reports: found }) => {
        const known = found.filter(({ name }) => VIEWS[name]);
        return known.length
          ? known.map(({ name, summary }) => html`<${VIEWS[name]} key=${name} summary=${summary} />`)
          : html`<${Empty} title="No report yet">Make one: faultline demo, or make report and make bench.
              The inspector looks for them in the folder that --reports names.<//>`;
      }}
    <//>
  `;
}
