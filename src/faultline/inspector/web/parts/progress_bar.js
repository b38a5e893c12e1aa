// How far a job is, as its handler reported: a bar, the percentage and the handler's message.
import { html } from "../html.js";

export function ProgressBar({ progress: { fraction, message } }) {
  const percentage = `${Math.floor(fraction * 100)} %`;
  return html`<span class="progress-bar">
    <progress max="1" value=${fraction} aria-label=${`Progress: ${percentage}`}></progress>
    <span>${percentage}${message && html` <bdi class="quiet">${message}</bdi>`}</span>
  </span>`;
}
