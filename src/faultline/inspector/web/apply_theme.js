// Applies the saved theme before the first paint. A module would run too late, so this is a plain script.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("faultline-theme");
  } catch {
    // Local storage is disabled: the system's theme is used.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
