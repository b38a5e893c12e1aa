// JSON text with indentation. The text is not parsed, so every number stays as it was written.
import { html } from "../html.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;
const CLOSING = { "{": "}", "[": "]" };
const INDENT = "  ";
const MAX_INDENT_LEVELS = 40; // a payload of only brackets must not become megabytes of spaces

// Indents as JSON.stringify(value, null, 2) does. Pure.
export function indentJson(text) {
  const tokens = text.match(TOKEN) ?? [];
  let depth = 0;
  let indented = "";
  tokens.forEach((token, index) => {
    if (CLOSING[token]) {
      indented += token;
      depth += 1;
      if (tokens[index + 1] !== CLOSING[token]) indented += newLine(depth);
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      if (!CLOSING[tokens[index - 1]]) indented += newLine(depth);
      indented += token;
    } else if (token === ",") indented += `,${newLine(depth)}`;
    else if (token === ":") indented += ": ";
    else indented += token;
  });
  return indented;
}

function newLine(depth) {
  return `\n${INDENT.repeat(Math.min(depth, MAX_INDENT_LEVELS))}`;
}

const STRING = /("(?:[^"\\]|\\.)*")/s;
// Hebrew and Arabic scripts, and the Unicode characters that control text direction.
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufefc]|[\u{10800}-\u{10fff}\u{1e800}-\u{1eeff}]/u;

// Puts each right-to-left string into a <bdi>, so that it cannot reorder the text beside it.
export function JsonView({ text }) {
  if (!RIGHT_TO_LEFT.test(text)) return text;
  return text
    .split(STRING)
    .map((part, index) => (RIGHT_TO_LEFT.test(part) ? html`<bdi key=${index}>${part}</bdi>` : part));
}
