import { live, start } from "./data/live.js";
import { askAbout } from "./data/operator.js";
import { html, render } from "./html.js";
import { Shell } from "./shell/shell.js";

start();
askAbout();
let link = live.value.link;
live.watch((value) => {
  if (value.link === "open" && link === "lost") askAbout(); // it may be another inspector now
  link = value.link;
});
render(html`<${Shell} />`, document.getElementById("app"));
