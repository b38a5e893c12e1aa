// The layout around every page: navigation, top bar, banner, dialogs and toasts.
import { live } from "../data/live.js";
import { useStore } from "../data/store.js";
import { html, useEffect, useErrorBoundary, useRef, useState } from "../html.js";
import { Job } from "../pages/job.js";
import { Limit } from "../pages/limit.js";
import { PAGES } from "../pages/pages.js";
import { Schedule } from "../pages/schedule.js";
import { Heading } from "../parts/heading.js";
import { EmptyState } from "../parts/notice.js";
import { linkTo, useRoute } from "../router.js";
import { Banner } from "./banner.js";
import { Confirmation } from "./confirmation.js";
import { Help } from "./help.js";
import { KeyDialog } from "./key_dialog.js";
import { useShortcuts } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { Toasts } from "./toasts.js";
import { Topbar } from "./topbar.js";

const RECORDS = { jobs: "Job", limits: "Limit", schedules: "Schedule" };

export function Shell() {
  const route = useRoute();
  const [opened, setOpened] = useState(null); // "help" or "key"
  const isOutage = useStore(live, ({ connection, database }) => connection === "lost" || database.ok === false);
  const main = useRef(null);
  useShortcuts({ onHelp: () => setOpened("help") });
  useFocusOnNavigation(route, main);

  const page = PAGES.find(({ name }) => name === route.page);
  const title = route.id ? `${RECORDS[route.page] ?? "Job"} ${route.id}` : (page?.title ?? "Not found");
  useEffect(() => {
    document.title = `${title} · Faultline`;
  }, [title]);

  return html`<div class="shell">
    <a class="skip-link" href="#main" onClick=${skip}>Skip to the content</a>
    <${Sidebar} current=${route.page} />
    <div>
      <${Topbar} onHelp=${() => setOpened("help")} onKey=${() => setOpened("key")} />
      <${Banner} />
      <main class="main" id="main" tabindex="-1" ref=${main}>
        <div class="page" data-outdated=${isOutage ? "" : undefined}>
          <${PageContent} key=${`${route.page}/${route.id}`} route=${route} page=${page} />
        </div>
      </main>
    </div>
    <${Toasts} />
    <${Confirmation} />
    ${opened === "help" && html`<${Help} onClose=${() => setOpened(null)} />`}
    ${opened === "key" && html`<${KeyDialog} onClose=${() => setOpened(null)} />`}
  </div>`;

  // The default action would set the hash, which the router reads as a page.
  function skip(event) {
    event.preventDefault();
    main.current.focus();
  }
}

// An error in one page must not break the navigation.
function PageContent({ route, page }) {
  const [error] = useErrorBoundary((failure) => console.error(failure));
  if (error) {
    return html`<${Heading} title=${page?.title ?? "Faultline"} />
      <${EmptyState} title="This page could not be shown">
        The dashboard has a bug: ${String(error.message ?? error)}. The queue is not affected. Reload to try again.
      <//>`;
  }
  if (route.page === "jobs" && route.id) return html`<${Job} id=${route.id} />`;
  if (route.page === "limits" && route.id) return html`<${Limit} name=${route.id} />`;
  if (route.page === "schedules" && route.id) return html`<${Schedule} name=${route.id} />`;
  if (!page) {
    return html`<${Heading} title="Not found" />
      <${EmptyState} title="There is no page at this address"><a href=${linkTo("overview")}>Go to the overview</a><//>`;
  }
  return html`<${page.component} query=${route.query} />`;
}

// After navigation: scrolls to the top and focuses the heading.
function useFocusOnNavigation(route, main) {
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
