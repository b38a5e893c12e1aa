// The frame around every page.
import { live } from "../data/live.js";
import { useStore } from "../data/store.js";
import { html, useEffect, useErrorBoundary, useRef, useState } from "../html.js";
import { Job } from "../pages/job.js";
import { PAGES } from "../pages/pages.js";
import { Heading } from "../parts/heading.js";
import { Empty } from "../parts/notice.js";
import { linkTo, useRoute } from "../router.js";
import { Banner } from "./banner.js";
import { Confirmation } from "./confirmation.js";
import { Help } from "./help.js";
import { KeyDialog } from "./key_dialog.js";
import { useShortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { Toasts } from "./toasts.js";
import { Topbar } from "./topbar.js";

export function Shell() {
  const route = useRoute();
  const [opened, setOpened] = useState(null); // "help" or "key"
  const isAway = useStore(live, ({ link, database }) => link === "lost" || database.ok === false);
  const main = useRef(null);
  useShortcuts({ onHelp: () => setOpened("help") });
  useArrival(route, main);

  const page = PAGES.find(({ name }) => name === route.page);
  const title = route.id ? `Job ${route.id}` : (page?.title ?? "Not found");
  useEffect(() => {
    document.title = `${title} · Faultline`;
  }, [title]);

  return html`<div class="shell">
    <a class="skip-link" href="#main" onClick=${skip}>Skip to the page</a>
    <${Sidebar} current=${route.page} />
    <div>
      <${Topbar} onHelp=${() => setOpened("help")} onKey=${() => setOpened("key")} />
      <${Banner} />
      <main class="main" id="main" tabindex="-1" ref=${main}>
        <div class="page" data-old=${isAway ? "" : undefined}>
          <${Guarded} key=${`${route.page}/${route.id}`} route=${route} page=${page} />
        </div>
      </main>
    </div>
    <${Toasts} />
    <${Confirmation} />
    ${opened === "help" && html`<${Help} onClose=${() => setOpened(null)} />`}
    ${opened === "key" && html`<${KeyDialog} onClose=${() => setOpened(null)} />`}
  </div>`;

  // Its own hash would be taken for a page.
  function skip(event) {
    event.preventDefault();
    main.current.focus();
  }
}

// A fault in one page must not take the navigation with it.
function Guarded({ route, page }) {
  const [error] = useErrorBoundary((failure) => console.error(failure));
  if (error) {
    return html`<${Heading} title=${page?.title ?? "Faultline"} />
      <${Empty} title="This page could not be drawn">
        ${String(error.message ?? error)} – a fault of the dashboard, not of the queue. Reload to try again.
      <//>`;
  }
  if (route.page === "jobs" && route.id) return html`<${Job} id=${route.id} />`;
  if (!page) {
    return html`<${Heading} title="Not found" />
      <${Empty} title="There is no such page"><a href=${linkTo("overview")}>Go to the overview</a><//>`;
  }
  return html`<${page.component} query=${route.query} />`;
}

// A new page is read from its heading, and from its top.
function useArrival(route, main) {
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    scrollTo(0, 0);
    main.current.querySelector("h1")?.focus({ preventScroll: true });
  }, [route.page, route.id]);
}
