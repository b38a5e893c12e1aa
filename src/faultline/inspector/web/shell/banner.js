// Tells the user when the page does not show live data, and why.
import { live } from "../data/live.js";
import { useStore } from "../data/store.js";
import { clockTime, sentence } from "../format.js";
import { html, useEffect, useState } from "../html.js";

const RECOVERED_MS = 4000;

export function Banner() {
  const { connection, refusal, database, receivedAt } = useStore(live);
  const outage = connection === "lost" ? "inspector" : database.ok === false ? "database" : null;
  const [hasRecovered, setHasRecovered] = useState(false);
  const [previous, setPrevious] = useState(null);

  useEffect(() => {
    if (previous && !outage) setHasRecovered(true);
    setPrevious(outage);
    if (outage) setHasRecovered(false);
  }, [outage]);
  useEffect(() => {
    if (!hasRecovered) return undefined;
    const timer = setTimeout(() => setHasRecovered(false), RECOVERED_MS);
    return () => clearTimeout(timer);
  }, [hasRecovered]);

  const age = receivedAt ? `This page shows data from ${clockTime(receivedAt)}.` : "This page has no data yet.";
  return html`<div role="status" aria-live="polite">
    ${outage === "database" &&
    html`<div class="banner" data-outage="database">
      <strong>The database is unreachable.</strong>
      <span>${age} The inspector and the workers keep trying to reconnect.</span>
      ${database.reason && html`<span class="banner-reason clip" title=${database.reason}><bdi>${database.reason}</bdi></span>`}
    </div>`}
    ${outage === "inspector" &&
    html`<div class="banner" data-outage="inspector">
      <strong>The inspector does not respond.</strong>
      <span>${age} Jobs continue to run without the inspector. Reconnecting…</span>
    </div>`}
    ${connection === "polling" &&
    !outage &&
    html`<div class="banner" data-tone="warn" data-outage="streams">
      <strong>This page is not live.</strong>
      <span>${sentence(refusal.message)} This page polls every 5 seconds instead. Close another dashboard to make it live
        again.</span>
    </div>`}
    ${hasRecovered &&
    html`<div class="banner" data-tone="good"><strong>Reconnected.</strong><span>This page is live again.</span></div>`}
  </div>`;
}
