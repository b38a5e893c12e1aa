// Lays out JSON text without parsing it, so that every number stays as it was written. Pure.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;
const CLOSING = { "{": "}", "[": "]" };
const INDENT = "  ";
const DEEPEST_INDENT = 40; // levels: a payload of nothing but brackets must not become megabytes of spaces

// → lines joined by line breaks, as JSON.stringify(value, null, 2) lays them out.
export function layOutJson(text) {
  const tokens = text.match(TOKEN) ?? [];
  let depth = 0;
  let laidOut = "";
  tokens.forEach((token, index) => {
    if (CLOSING[token]) {
      laidOut += token;
      depth += 1;
      if (tokens[index + 1] !== CLOSING[token]) laidOut += newLine(depth);
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      if (!CLOSING[tokens[index - 1]]) laidOut += newLine(depth);
      laidOut += token;
    } else if (token === ",") laidOut += `,${newLine(depth)}`;
    else if (token === ":") laidOut += ": ";
    else laidOut += token;
  });
  return laidOut;
}

function newLine(depth) {
  return `\n${INDENT.repeat(Math.min(depth, DEEPEST_INDENT))}`;
}
