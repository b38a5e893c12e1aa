// Measures how wide the browser draws a text of the timeline, with the same element, class and fonts.

const SVG = "http://www.w3.org/2000/svg";

// The attributes that determine the look of a text. drawing.js uses the same.
export const TEXT = {
  worker: { class: "lane-worker" },
  detail: { class: "lane-detail" },
  token: { class: "bar-text" },
  overlap: { class: "overlap-text" },
  axis: { class: "axis-text" },
  note: { class: "note", "data-tone": "plain" },
  noteGood: { class: "note", "data-tone": "good" },
  noteWarn: { class: "note", "data-tone": "warn" },
  noteBad: { class: "note", "data-tone": "bad" },
};

const NOTES = { good: "noteGood", warn: "noteWarn", bad: "noteBad" };

export function noteKind(tone) {
  return NOTES[tone] ?? "note";
}

// Calls `use` with measure(kind, text) → pixels. The measured elements are removed when `use` returns.
export function withTextWidth(parent, use) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "text-width");
  svg.setAttribute("aria-hidden", "true");
  parent.append(svg);
  const elements = new Map();
  const known = new Map();
  const measure = (kind, text) => {
    const key = `${kind} ${text}`;
    if (!known.has(key)) {
      if (!elements.has(kind)) elements.set(kind, addText(svg, TEXT[kind]));
      const element = elements.get(kind);
      element.textContent = text;
      known.set(key, element.getComputedTextLength());
    }
    return known.get(key);
  };
  try {
    return use(measure);
  } finally {
    svg.remove();
  }
}

function addText(svg, attributes) {
  const element = document.createElementNS(SVG, "text");
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  svg.append(element);
  return element;
}
