// Notifications on every page: PostgreSQL has refused a stale write.
import { live } from "../data/live.js";
import { useStore } from "../data/store.js";
import { humanize } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../parts/icons.js";
import { currentRoute, linkTo } from "../router.js";

const SHOWN_MS = 12_000;
const MAX_SHOWN = 2;

export function Toasts() {
  const rejections = useStore(live, (value) => value.rejections);
  const [dismissed, setDismissed] = useState(() => new Set());
  const arrivedAt = useRef(new Map());
  const [, setNow] = useState(0);

  for (const { id } of rejections) if (!arrivedAt.current.has(id)) arrivedAt.current.set(id, Date.now());
  const route = currentRoute();
  const shown = rejections
    .filter(({ id, job_id }) => !dismissed.has(id) && Date.now() - arrivedAt.current.get(id) < SHOWN_MS && route.id !== job_id)
    .slice(0, route.page === "rejections" ? 0 : MAX_SHOWN);
  useEffect(() => {
    if (!shown.length) return undefined;
    const timer = setTimeout(() => setNow(Date.now()), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [shown.length, rejections]);

  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map(
      (each) => html`<div class="toast" key=${each.id}>
        <div>
          <strong>PostgreSQL refused a stale commit.</strong>
          <p>Worker <bdi>${each.worker}</bdi>, token ${each.stale_token}: ${humanize(each.reason)}.</p>
          <p><a href=${linkTo("jobs", each.job_id)}>Show the job's timeline</a></p>
        </div>
        <button class="button" data-kind="quiet" data-icon data-size="small" type="button" aria-label="Dismiss this message"
          onClick=${() => setDismissed(new Set(dismissed).add(each.id))}><${Icon} name="close" /></button>
      </div>`,
    )}
  </div>`;
}
