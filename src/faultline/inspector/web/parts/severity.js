// The severity of a finding as a word, an icon and a colour.
import { html } from "../html.js";
import { Icon } from "./icons.js";

const TONES = { problem: "bad", warning: "warn", note: "plain", fine: "good" };
const WORDS = { problem: "Problem", warning: "Warning", note: "Note", fine: "Fine" };

export function Severity({ level }) {
  return html`<span class="severity" data-tone=${TONES[level]}><${Icon} name=${level} />${WORDS[level]}</span>`;
}
