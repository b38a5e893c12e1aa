// The navigation and the state of the connection.
import { live } from "../data/live.js";
import { operator } from "../data/operator.js";
import { useStore } from "../data/store.js";
import { html, useEffect, useState } from "../html.js";
import { PAGES } from "../pages/pages.js";
import { Icon, Logo } from "../parts/icons.js";
import { linkTo } from "../router.js";

const CONNECTION_LABELS = {
  connecting: "Connecting",
  open: "Live",
  polling: "Polling every 5 s",
  lost: "Inspector unreachable",
  outage: "Database unreachable",
};

export function Sidebar({ current }) {
  const [isOpen, setIsOpen] = useState(false);
  const unseen = useStore(live, ({ unseenRejections }) => unseenRejections);
  const connection = useStore(live, ({ connection: state, database }) =>
    state !== "lost" && database.ok === false ? "outage" : state,
  );
  const latency = useStore(live, ({ overview }) => overview?.database?.latency_ms);
  const version = useStore(operator, (value) => value.version);
  useEffect(() => setIsOpen(false), [current]);

  return html`<header class="sidebar" data-open=${isOpen ? "" : undefined}>
    <div class="sidebar-head">
      <a class="brand" href=${linkTo("overview")}><${Logo} />Faultline</a>
      <button class="button menu-button" data-kind="quiet" data-icon type="button" aria-label="Menu"
        aria-expanded=${String(isOpen)} aria-controls="navigation" onClick=${() => setIsOpen(!isOpen)}>
        <${Icon} name=${isOpen ? "close" : "menu"} />
      </button>
    </div>
    <nav id="navigation" aria-label="Pages">
      <ul class="nav-list">
        ${PAGES.map(
          ({ name, title }) => html`<li key=${name}>
            <a class="nav-link" href=${linkTo(name)} aria-current=${name === current ? "page" : undefined}
              onClick=${() => setIsOpen(false)}>
              <${Icon} name=${name} />${title}
              ${name === "rejections" &&
              unseen > 0 &&
              html`<span class="nav-count">${unseen}<span class="visually-hidden"> new</span></span>`}
            </a>
          </li>`,
        )}
      </ul>
    </nav>
    <div class="sidebar-foot">
      <span class="connection-state" data-connection=${connection}>${CONNECTION_LABELS[connection]}</span>
      ${version && html`<span>Faultline ${version}</span>`}
      ${(connection === "open" || connection === "polling") && latency != null && html`<span>PostgreSQL: ${latency.toFixed(1)} ms</span>`}
    </div>
  </header>`;
}
