// The schedules with their next and last firings, and the operator's actions.
import { useResource } from "../data/resource.js";
import { html } from "../html.js";
import { useMayOperate } from "../parts/action.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { LocalPager, useLocalPages } from "../parts/pager.js";
import { expressionInWords, NextFiring, PlannedTime, ScheduleActions, ScheduleLink } from "../parts/schedule.js";
import { Table } from "../parts/table.js";
import { linkTo } from "../router.js";

export function Schedules() {
  const schedules = useResource("schedules");
  return html`
    <${Heading} title="Schedules">Each planned time enqueues one job. Planned times are shown in the schedule's time zone.<//>
    <${ResourceView} resource=${schedules} rows=${5}>
      ${({ schedules: rows }) =>
        rows.length
          ? html`<${ScheduleTable} rows=${rows} reload=${schedules.reload} />`
          : html`<${EmptyState} title="There is no schedule">Code declares schedules with @app.schedule(…). An operator adds one
              with: faultline schedules add<//>`}
    <//>
  `;
}

function ScheduleTable({ rows, reload }) {
  const mayOperate = useMayOperate();
  const pages = useLocalPages(rows, "schedules");
  const columns = [
    { label: "Schedule", cell: (schedule) => html`<${NameAndProblem} schedule=${schedule} />` },
    { label: "State", kind: "tight", cell: ({ state }) => html`<${Badge} word=${state} />` },
    {
      label: "When",
      kind: "roomy",
      cell: (schedule) => html`<span><bdi>${expressionInWords(schedule)}</bdi>
        <span class="sub"><bdi>${schedule.time_zone}</bdi></span></span>`,
    },
    { label: "Next firing", kind: "roomy", cell: (schedule) => html`<${NextFiring} schedule=${schedule} />` },
    { label: "Last firing", kind: "roomy", cell: (schedule) => html`<${LastFiring} schedule=${schedule} />` },
  ];
  if (mayOperate) {
    columns.push({
      label: "",
      kind: "tight",
      cell: (schedule) => html`<span class="button-row"><${ScheduleActions} schedule=${schedule} onDone=${reload} size="small" /></span>`,
    });
  }
  return html`
    <${Table} caption="Schedules" list=${String(pages.current)} columns=${columns} rows=${pages.rows} rowKey=${({ name }) => name} />
    <${LocalPager} pages=${pages} what="schedules" />
  `;
}

function NameAndProblem({ schedule: { name, task, paused_reason: reason, last_error: error } }) {
  return html`<span>
    <${ScheduleLink} name=${name} />
    <span class="sub"><bdi>${task}</bdi></span>
    ${reason && html`<span class="sub"><bdi>${reason}</bdi></span>`}
    ${error && html`<span class="sub clip" data-tone="bad"><bdi>${error}</bdi></span>`}
  </span>`;
}

function LastFiring({ schedule: { last_planned_at: at, last_job_id: id } }) {
  return html`<span>
    <${PlannedTime} at=${at} />
    ${id && html`<span class="sub"><a href=${linkTo("jobs", id)}>newest job</a></span>`}
  </span>`;
}
