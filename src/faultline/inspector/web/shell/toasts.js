// What has just happened and matters on any page: a stale write was refused.
import { live } from "../data/live.js";
import { useStore } from "../data/store.js";
import { words } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { Icon } from "../parts/icons.js";
import { currentRoute, linkTo } from "../router.js";

const SHOWN_MS = 12_000;
const SHOWN_AT_ONCE = 2;

export function Toasts() {
  const rejections = useStore(live, (value) => value.rejections);
  const [dismissed, setDismissed] = useState(() => new Set());
  const seenAt = useRef(new Map());
  const [, setNow] = useState(0);

  for (const { id } of rejections) if (!seenAt.current.has(id)) seenAt.current.set(id, Date.now());
  const route = currentRoute();
  const shown = rejections
    .filter(({ id, job_id }) => !dismissed.has(id) && Date.now() - seenAt.current.get(id) < SHOWN_MS && route.id !== job_id)
    .slice(0, route.page === "rejections" ? 0 : SHOWN_AT_ONCE);
  useEffect(() => {
    if (!shown.length) return undefined;
    const timer = setTimeout(() => setNow(Date.now()), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [shown.length, rejections]);

  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map(
      (each) => html`<div class="toast" key=${each.id}>
        <div>
          <strong>A late commit was refused.</strong>
          <p>Token ${each.stale_token} of <bdi>${each.worker}</bdi>: ${words(each.reason)}.</p>
          <p><a href=${linkTo("jobs", each.job_id)}>See its timeline</a></p>
        </div>
        <button class="button" data-kind="quiet" data-icon data-size="small" type="button" aria-label="Dismiss"
          onClick=${() => setDismissed(new Set(dismissed).add(each.id))}><${Icon} name="close" /></button>
      </div>`,
    )}
  </div>`;
}
