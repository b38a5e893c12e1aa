// JSON whose strings cannot reorder what stands beside them, whatever direction their characters have.
import { html } from "../html.js";

const STRING = /("(?:[^"\\]|\\.)*")/s;
// Hebrew and Arabic scripts, and the characters that control direction.
const TURNS = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufefc]|[\u{10800}-\u{10fff}\u{1e800}-\u{1eeff}]/u;

export function IsolatedJson({ text }) {
  if (!TURNS.test(text)) return text;
  return text
    .split(STRING)
    .map((part, index) => (TURNS.test(part) ? html`<bdi key=${index}>${part}</bdi>` : part));
}
