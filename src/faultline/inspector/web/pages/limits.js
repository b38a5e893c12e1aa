// The limits with their running and waiting jobs, and the operator's actions.
import { useResource } from "../data/resource.js";
import { html } from "../html.js";
import { Heading } from "../parts/heading.js";
import { ChangeLimit, limitInWords, placesInWords, ResetLimit } from "../parts/limit.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { useMayOperate } from "../parts/action.js";
import { LocalPager, useLocalPages } from "../parts/pager.js";
import { Table } from "../parts/table.js";
import { Timestamp } from "../parts/timestamp.js";
import { count } from "../format.js";
import { linkTo } from "../router.js";

export function Limits() {
  const limits = useResource("limits");
  return html`
    <${Heading} title="Limits">How many jobs of a queue, a task or a key run at once or start in a period, in all workers
      together. A job that may not start yet waits.<//>
    <${ResourceView} resource=${limits} rows=${5}>
      ${({ limits: rows }) =>
        rows.length
          ? html`<${LimitTable} rows=${rows} reload=${limits.reload} />`
          : html`<${EmptyState} title="There is no limit">Code declares limits with @app.task(concurrency=…, rate=…). An operator
              sets one with: faultline limits set<//>`}
    <//>
  `;
}

function LimitTable({ rows, reload }) {
  const mayOperate = useMayOperate();
  const pages = useLocalPages(rows, "limits");
  const columns = [
    {
      label: "Limit",
      cell: (limit) => html`<span><a href=${linkTo("limits", limit.name)}><bdi>${limit.name}</bdi></a>
        <span class="sub">${limitInWords(limit)}</span></span>`,
    },
    { label: "Running", kind: "numeric", cell: placesInWords },
    { label: "Waiting", kind: "numeric", cell: ({ waiting }) => html`<span class=${waiting ? undefined : "zero"}>${count(waiting)}</span>` },
    {
      label: "Changed",
      cell: ({ changed_by: by, changed_at: at }) => html`<span><${Timestamp} at=${at} /><span class="sub">by ${changer(by)}</span></span>`,
    },
  ];
  if (mayOperate) {
    columns.push({
      label: "",
      kind: "tight",
      cell: (limit) => html`<span class="button-row"><${ChangeLimit} limit=${limit} onDone=${reload} size="small" />
        <${ResetLimit} limit=${limit} onDone=${reload} size="small" /></span>`,
    });
  }
  return html`
    <${Table} caption="Limits" list=${String(pages.current)} columns=${columns} rows=${pages.rows} rowKey=${({ name }) => name} />
    <${LocalPager} pages=${pages} what="limits" />
  `;
}

export function changer(by) {
  return by === "operator" ? "an operator" : "the code";
}
