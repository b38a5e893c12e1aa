// Which theme was chosen: "system", "light" or "dark". theme.js has applied it before the first paint.
import { Store } from "./store.js";

const ORDER = ["system", "light", "dark"];

export const theme = new Store({ name: document.documentElement.dataset.theme ?? "system" });

export function nextTheme() {
  const name = ORDER[(ORDER.indexOf(theme.value.name) + 1) % ORDER.length];
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("faultline-theme", name);
  } catch {
    // Not remembered, then: it still holds for this page.
  }
  theme.set({ name });
  dispatchEvent(new Event("faultline-theme")); // canvases are not styled by CSS
}
