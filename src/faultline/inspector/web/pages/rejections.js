// The stale writes that PostgreSQL refused.
import { withQuery } from "../data/api.js";
import { live, markRejectionsSeen } from "../data/live.js";
import { useResource } from "../data/resource.js";
import { useStore } from "../data/store.js";
import { duration, humanize } from "../format.js";
import { html, useEffect } from "../html.js";
import { Token } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { JobLink } from "../parts/job_link.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { Pager, useCursors } from "../parts/pager.js";
import { Table } from "../parts/table.js";
import { Timestamp } from "../parts/timestamp.js";

const PAGE_SIZE = 50;

const COLUMNS = [
  { label: "When", kind: "tight", cell: ({ rejected_at: at }) => html`<${Timestamp} at=${at} />` },
  { label: "Job", cell: ({ job_id: id, task }) => html`<${JobLink} id=${id} task=${task} />` },
  { label: "Stale worker", cell: ({ worker }) => worker },
  { label: "Stale token", kind: "tight", cell: ({ stale_token: token }) => html`<${Token} value=${token} tone="bad" />` },
  { label: "Current token", kind: "tight", cell: ({ current_token: token }) => html`<${Token} value=${token} tone="good" />` },
  { label: "Reason", cell: ({ reason }) => humanize(reason) },
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
    <${Heading} title="Refused writes">Without fencing, each of these writes could have applied a job's effect twice. The
      worker had lost its lease, so PostgreSQL refused its commit and rolled back its transaction. Overlap is the time
      during which two attempts of the job ran at once.<//>
    <${ResourceView} resource=${rejections} rows=${6}>
      ${({ rejections: rows, next }) =>
        rows.length
          ? html`<${Table} caption="Refused writes, newest first" list=${String(cursors.cursor)} columns=${COLUMNS} rows=${rows}
                rowKey=${({ id }) => id} isNew=${isNew} />
              <${Pager} cursors=${cursors} next=${next} shown=${rows.length} what="refusals" />`
          : html`<${EmptyState} title="No write has been refused yet">No worker has tried to commit with an old token. To see
              PostgreSQL refuse a write, run: faultline demo<//>`}
    <//>
  `;
}
