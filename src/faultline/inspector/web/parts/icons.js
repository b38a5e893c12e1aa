// Line icons, 20 by 20. They are decoration: every icon stands beside a word or an aria-label.
import { html } from "../html.js";

const PATHS = {
  overview: "M3 16V9m4.7 7V4m4.6 12v-5M17 16V7",
  leases: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm0-11v4l2.6 1.8",
  workers: "M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01",
  queues: "M4 5h12M4 10h12M4 15h7",
  limits: "M3 14a7 7 0 0 1 14 0M10 14l3-4.5M3 17h14",
  schedules: "M4 5h12v12H4zM4 9h12M7.5 3v4M12.5 3v4",
  jobs: "M5 3h7l3.5 3.5V17H5zM8 10h4.5M8 13h4.5",
  rejections: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM7.5 7.5l5 5m0-5-5 5",
  reports: "M4 3v14h13M7 13l3-4 2.5 2L16 6",
  menu: "M3 6h14M3 10h14M3 14h14",
  light: "M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM10 2.5V4m0 12v1.5M2.5 10H4m12 0h1.5M4.7 4.7l1 1m8.6 8.6 1 1m0-10.6-1 1m-8.6 8.6-1 1",
  dark: "M16.5 12.3A7 7 0 0 1 7.7 3.5a7 7 0 1 0 8.8 8.8Z",
  system: "M3 4h14v9H3zM7.5 16.5h5M10 13v3.5",
  key: "M12.5 3.5a4 4 0 1 1-3.3 6.2L3.5 15.4V17H6v-2h2v-2l2-1.5",
  help: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM8 8a2 2 0 1 1 2.8 1.9c-.5.2-.8.6-.8 1.3m0 2.3h.01",
  close: "M5 5l10 10M15 5 5 15",
  copy: "M7 7h9v9H7zM4 13V4h9",
  problem: "M6.8 2.5h6.4l4.3 4.3v6.4l-4.3 4.3H6.8l-4.3-4.3V6.8zM10 6v5m0 2.8h.01",
  warning: "M10 3 2.5 16.5h15zM10 8v4m0 2.3h.01",
  note: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm0-8v4.5M10 6.5h.01",
  fine: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm-3-7 2.2 2.3L13.2 8",
  audit: "M5 3h10v14H5zM8 7h4M8 10h4M8 13h2",
};

export function Icon({ name }) {
  return html`<svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.6"
    stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}

// Layers of rock, shifted along a fault line.
export function Logo() {
  return html`<svg viewBox="0 0 24 24" aria-hidden="true" focusable="false" fill="currentColor">
    <path d="M2 4h11.2l-1.7 4H2zM2 10h8.7L9 14H2zM2 16h6.1l-1.7 4H2z" />
    <path opacity="0.5" d="M15.6 7H22v4h-8.1zM13.1 13H22v4H11.4zM10.5 19H22v3H9.2z" />
  </svg>`;
}
