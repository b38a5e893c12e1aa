// The summaries of drills and benchmarks in the inspector's folder of reports.
import { useResource } from "../data/resource.js";
import { html } from "../html.js";
import { Heading } from "../parts/heading.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { Comparison } from "../reports/comparison.js";
import { Performance } from "../reports/performance.js";

const VIEWS = { benchmark_summary: Comparison, performance: Performance };

export function Reports() {
  const reports = useResource("reports", { isLive: false });
  return html`
    <${Heading} title="Reports">Results of drills and benchmarks. Each report names the machine and the commit that it was measured on.<//>
    <${ResourceView} resource=${reports} rows=${4}>
      ${({ reports: found }) => {
        const known = found.filter(({ name }) => VIEWS[name]);
        return known.length
          ? known.map(({ name, summary }) => html`<${VIEWS[name]} key=${name} summary=${summary} />`)
          : html`<${EmptyState} title="There is no report yet">To make one, run: pip install 'faultline-queue[drills]', then faultline demo; in a checkout also make report or make bench.
              The inspector reads the folder that its option --reports names.<//>`;
      }}
    <//>
  `;
}
