// The pages in the order of the navigation, with keyboard shortcut and component.
import { Audit } from "./audit.js";
import { Jobs } from "./jobs.js";
import { Leases } from "./leases.js";
import { Limits } from "./limits.js";
import { Overview } from "./overview.js";
import { Queues } from "./queues.js";
import { Rejections } from "./rejections.js";
import { Reports } from "./reports.js";
import { Schedules } from "./schedules.js";
import { Workers } from "./workers.js";

export const PAGES = [
  { name: "overview", title: "Overview", key: "o", component: Overview },
  { name: "leases", title: "Leases at risk", key: "l", component: Leases },
  { name: "workers", title: "Workers", key: "w", component: Workers },
  { name: "queues", title: "Queues", key: "q", component: Queues },
  { name: "limits", title: "Limits", key: "m", component: Limits },
  { name: "schedules", title: "Schedules", key: "s", component: Schedules },
  { name: "jobs", title: "Jobs", key: "j", component: Jobs },
  { name: "rejections", title: "Refused writes", key: "r", component: Rejections },
  { name: "audit", title: "Audit log", key: "a", component: Audit },
  { name: "reports", title: "Reports", key: "p", component: Reports },
];
