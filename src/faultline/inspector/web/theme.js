// Before the first paint, and so not a module: the theme that was chosen here, or the system's.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("faultline-theme");
  } catch {
    // Storage may be switched off: then the system decides.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
