// Says when the facts on the page are old, and why. Never silently.
import { live } from "../data/live.js";
import { useStore } from "../data/store.js";
import { moment, sentence } from "../format.js";
import { html, useEffect, useState } from "../html.js";

const BACK_MS = 4000;

export function Banner() {
  const { link, refusal, database, heardAt } = useStore(live);
  const trouble = link === "lost" ? "inspector" : database.ok === false ? "database" : null;
  const [isBack, setIsBack] = useState(false);
  const [before, setBefore] = useState(null);

  useEffect(() => {
    if (before && !trouble) setIsBack(true);
    setBefore(trouble);
    if (trouble) setIsBack(false);
  }, [trouble]);
  useEffect(() => {
    if (!isBack) return undefined;
    const timer = setTimeout(() => setIsBack(false), BACK_MS);
    return () => clearTimeout(timer);
  }, [isBack]);

  const seen = heardAt ? `What you see is from ${moment(heardAt)}.` : "Nothing has been seen yet.";
  return html`<div role="status" aria-live="polite">
    ${trouble === "database" &&
    html`<div class="banner" data-trouble="database">
      <strong>The database is away.</strong>
      <span>${seen} Workers reconnect by themselves.</span>
      ${database.reason && html`<span class="banner-reason clip" title=${database.reason}><bdi>${database.reason}</bdi></span>`}
    </div>`}
    ${trouble === "inspector" &&
    html`<div class="banner" data-trouble="inspector">
      <strong>The inspector does not answer.</strong>
      <span>${seen} The queue does not depend on it. Reconnecting…</span>
    </div>`}
    ${link === "polling" &&
    !trouble &&
    html`<div class="banner" data-tone="warn" data-trouble="streams">
      <strong>This page is not live.</strong>
      <span>The inspector has no stream left: ${sentence(refusal.message)} This page asks every 5 seconds instead, and is live
        again when another dashboard is closed.</span>
    </div>`}
    ${isBack &&
    html`<div class="banner" data-tone="good"><strong>Back.</strong><span>What you see is live again.</span></div>`}
  </div>`;
}
