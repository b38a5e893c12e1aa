// Every stale write that PostgreSQL refused.
import { withQuery } from "../data/api.js";
import { live, markRejectionsSeen } from "../data/live.js";
import { useResource } from "../data/resource.js";
import { useStore } from "../data/store.js";
import { duration, words } from "../format.js";
import { html, useEffect } from "../html.js";
import { Token } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { JobLink, Moment } from "../parts/ident.js";
import { Empty, Shown } from "../parts/notice.js";
import { Pager, useCursors } from "../parts/pager.js";
import { Table } from "../parts/table.js";

const PAGE_SIZE = 50;

const COLUMNS = [
  { label: "When", kind: "tight", cell: ({ rejected_at: at }) => html`<${Moment} at=${at} />` },
  { label: "Job", cell: ({ job_id: id, task }) => html`<${JobLink} id=${id} task=${task} />` },
  { label: "Late worker", cell: ({ worker }) => worker },
  { label: "Its token", kind: "tight", cell: ({ stale_token: token }) => html`<${Token} value=${token} tone="bad" />` },
  { label: "Current", kind: "tight", cell: ({ current_token: token }) => html`<${Token} value=${token} tone="good" />` },
  { label: "Why", cell: ({ reason }) => words(reason) },
  {
    label: "Overlap",
    kind: "numeric",
    cell: ({ overlap_seconds: seconds }) => (seconds ? duration(seconds) : html`<span class="zero">none</span>`),
  },
];

export function Rejections() {
  const cursors = useCursors("rejections");
  const rejections = useResource(withQuery("rejections", { limit: PAGE_SIZE, before: cursors.cursor }));
  const unseen = useStore(live, ({ unseenRejections }) => unseenRejections);
  const arrived = useStore(live, (value) => value.rejections);
  useEffect(markRejectionsSeen, [unseen]);
  const isNew = ({ id }) => arrived.some((each) => each.id === id);
  return html`
    <${Heading} title="Refused writes">Each of these would have been a second effect of a job. The worker had lost
      its lease, and PostgreSQL refused its commit together with everything else in its transaction.
      Overlap: for how long two attempts ran at once.<//>
    <${Shown} resource=${rejections} rows=${6}>
      ${({ rejections: rows, next }) =>
        rows.length
          ? html`<${Table} caption="Refused writes, newest first" list=${String(cursors.cursor)} columns=${COLUMNS} rows=${rows}
                rowKey=${({ id }) => id} isNew=${isNew} />
              <${Pager} cursors=${cursors} next=${next} shown=${rows.length} what="refusals" />`
          : html`<${Empty} title="No write has been refused">No worker has tried to commit under a token that was no
              longer its own. See it happen: faultline demo<//>`}
    <//>
  `;
}
