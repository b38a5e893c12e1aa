import { live, startLiveUpdates } from "./data/live.js";
import { loadInspectorInfo } from "./data/operator.js";
import { html, render } from "./html.js";
import { Shell } from "./shell/shell.js";

startLiveUpdates();
loadInspectorInfo();
let connection = live.value.connection;
live.watch((value) => {
  // After a lost connection the inspector may be another version, or have other settings.
  if (value.connection === "open" && connection === "lost") loadInspectorInfo();
  connection = value.connection;
});
render(html`<${Shell} />`, document.getElementById("app"));
