// The lease-risk board: the remaining time of every live lease, the leases at risk first.
import { useResource } from "../data/resource.js";
import { withQuery } from "../data/api.js";
import { duration } from "../format.js";
import { html } from "../html.js";
import { Badge, Token, toneOf } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { JobLink } from "../parts/job_link.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { Pager, useCursors } from "../parts/pager.js";
import { Table } from "../parts/table.js";

const PAGE_SIZE = 100;
const ORDER = { high: 0, medium: 1, low: 2 };

const COLUMNS = [
  { label: "Risk", kind: "tight", cell: ({ risk }) => html`<${Badge} word=${risk} />` },
  { label: "Remaining", cell: (lease) => html`<${Remaining} lease=${lease} />` },
  { label: "Job", cell: ({ job_id, task }) => html`<${JobLink} id=${job_id} task=${task} />` },
  { label: "Queue", cell: ({ queue }) => queue },
  { label: "Held by", cell: ({ owner }) => owner },
  { label: "Token", kind: "tight", cell: ({ token }) => html`<${Token} value=${token} />` },
];

export function Leases() {
  const cursors = useCursors("leases");
  const leases = useResource(withQuery("leases", { limit: PAGE_SIZE, after: cursors.cursor }));
  return html`
    <${Heading} title="Leases at risk">A worker may commit a job only while its lease lasts, and every heartbeat renews the lease.
      If a worker sends no heartbeats, its bar runs empty and another worker takes over the job.<//>
    <${ResourceView} resource=${leases} rows=${8}>
      ${({ leases: rows, next }) =>
        rows.length
          ? html`<${Table} caption="Live leases" list=${String(cursors.cursor)} columns=${COLUMNS} rows=${byRisk(rows)} rowKey=${({ job_id }) => job_id} />
              <${Pager} cursors=${cursors} next=${next} shown=${rows.length} what="leases" />`
          : html`<${EmptyState} title="No job is running">A lease appears here when a worker claims a job.<//>`}
    <//>
  `;
}

export function byRisk(leases) {
  return [...leases].sort(
    (a, b) => (ORDER[a.risk] ?? 3) - (ORDER[b.risk] ?? 3) || (a.remaining_share ?? 0) - (b.remaining_share ?? 0),
  );
}

function Remaining({ lease }) {
  const share = Math.min(1, Math.max(0, lease.remaining_share ?? 0));
  const isExpired = lease.remaining_seconds <= 0;
  return html`<span class="remaining">
    <span class="meter" data-tone=${toneOf(lease.risk)} style=${{ "--share": String(share) }} role="meter"
      aria-valuemin="0" aria-valuemax="1" aria-valuenow=${share.toFixed(2)}
      aria-label="Remaining share of the lease"><i></i></span>
    <b>${isExpired ? "expired" : duration(lease.remaining_seconds)}</b>
  </span>`;
}
