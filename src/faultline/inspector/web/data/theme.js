// The selected theme: "system", "light" or "dark". apply_theme.js applies it before the first paint.
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
    // Local storage is disabled: the theme lasts until this page is closed.
  }
  theme.set({ name });
  dispatchEvent(new Event("faultline-theme")); // the charts are canvases, which CSS does not style
}
