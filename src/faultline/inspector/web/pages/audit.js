// The audit log: operators' actions and refused keys, with actor, action, object, time, address and result.
import { get, withQuery } from "../data/api.js";
import { useResource } from "../data/resource.js";
import { humanize } from "../format.js";
import { html } from "../html.js";
import { Badge } from "../parts/badge.js";
import { Heading } from "../parts/heading.js";
import { EmptyState, ResourceView } from "../parts/notice.js";
import { Pager, useCursors } from "../parts/pager.js";
import { Table } from "../parts/table.js";
import { Timestamp } from "../parts/timestamp.js";
import { go, linkTo } from "../router.js";

const PAGE_SIZE = 50;
const MAX_REQUESTS = 40; // each request searches a bounded number of entries
const RESULTS = ["done", "unchanged", "refused"];
const TONES = { done: "good", unchanged: "plain", refused: "bad" };
const FILTERS = ["actor", "action", "object", "address", "result"];

const COLUMNS = [
  { label: "When", kind: "tight", cell: ({ at }) => html`<${Timestamp} at=${at} />` },
  { label: "Who", cell: (entry) => html`<${Who} entry=${entry} />` },
  { label: "What", cell: ({ action, object }) => html`<span>${humanize(action)} <${What} object=${object} /></span>` },
  { label: "From", cell: ({ address }) => address },
  { label: "Result", kind: "tight", cell: (entry) => html`<${Result} entry=${entry} />` },
  { label: "Detail", cell: ({ detail }) => detail && html`<span class="clip"><bdi>${detail}</bdi></span>` },
];

function Who({ entry: { actor, actor_kind: kind, role } }) {
  const about = kind === "role" ? "PostgreSQL role" : html`${humanize(kind)}, as the PostgreSQL role <bdi>${role}</bdi>`;
  return html`<span><bdi>${actor}</bdi><span class="sub">${about}</span></span>`;
}

function What({ object }) {
  if (!object) return null;
  const [kind, name] = [object.split(" ", 1)[0], object.slice(object.indexOf(" ") + 1)];
  if (kind === "job") return html`<a href=${linkTo("jobs", name)}><bdi>${object}</bdi></a>`;
  if (kind === "queue") return html`<a href=${linkTo("jobs", null, { queue: name })}><bdi>${object}</bdi></a>`;
  if (kind === "limit") return html`<a href=${linkTo("limits", name)}><bdi>${object}</bdi></a>`;
  if (kind === "schedule") return html`<a href=${linkTo("schedules", name)}><bdi>${object}</bdi></a>`;
  return html`<bdi>${object}</bdi>`;
}

function Result({ entry: { result, code, times } }) {
  return html`<span>
    <${Badge} word=${result} tone=${TONES[result]} />
    ${(code || times > 1) && html`<span class="sub">${[code, times > 1 && `${times} times`].filter(Boolean).join(", ")}</span>`}
  </span>`;
}

export function Audit({ query }) {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const isFiltered = Object.values(filters).some(Boolean);
  const cursors = useCursors(JSON.stringify(filters));
  const path = withQuery("audit", { ...filters, limit: PAGE_SIZE, before: cursors.cursor });
  const audit = useResource(path, { load: gather, isLive: !isFiltered });
  return html`
    <${Heading} title="Audit log">All actions of operators and all refused keys. PostgreSQL writes each entry in the
      transaction of the action, and refuses to change or delete it.<//>
    <${Filters} filters=${filters} isFiltered=${isFiltered} />
    <${ResourceView} resource=${audit} rows=${6}>
      ${({ audit: rows, next }) => html`
        ${rows.length > 0
          ? html`<${Table} caption="Audit log, newest first" list=${path} columns=${COLUMNS} rows=${rows} rowKey=${({ id }) => id} />`
          : html`<${EmptyState} title=${isFiltered ? "No entry matches the filters" : "No action has been recorded yet"}>
              ${isFiltered && html`<a href=${linkTo("audit")}>Show all entries</a>`}
            <//>`}
        <${Pager} cursors=${cursors} next=${next} shown=${rows.length} what="entries" />
      `}
    <//>
  `;
}

// Sends requests until a page is full.
async function gather(path, signal) {
  let found = await get(path, signal);
  for (let request = 0; request < MAX_REQUESTS && found.next && found.audit.length < PAGE_SIZE; request += 1) {
    const [name, query] = path.split("?");
    const rest = { limit: PAGE_SIZE - found.audit.length, before: found.next };
    const page = await get(withQuery(name, { ...Object.fromEntries(new URLSearchParams(query)), ...rest }), signal);
    found = { audit: [...found.audit, ...page.audit], next: page.next };
  }
  return found;
}

function Filters({ filters, isFiltered }) {
  const change = (name) => (event) => go("audit", null, { ...filters, [name]: event.currentTarget.value.trim() });
  const field = (label, name, placeholder = "any") => html`<label class="field">${label}
    <input autocomplete="off" spellcheck=${false} placeholder=${placeholder} value=${filters[name]} onChange=${change(name)} />
  </label>`;
  return html`<form class="filters" aria-label="Filters" onSubmit=${(event) => event.preventDefault()}>
    ${field("Who", "actor")} ${field("Action", "action")} ${field("Object", "object", "queue mail")} ${field("From", "address")}
    <label class="field">Result
      <select value=${filters.result} onChange=${change("result")}>
        <option value="">any</option>
        ${RESULTS.map((result) => html`<option key=${result} value=${result}>${result}</option>`)}
      </select>
    </label>
    ${isFiltered && html`<a class="button" data-kind="quiet" href=${linkTo("audit")}>Clear</a>`}
  </form>`;
}
