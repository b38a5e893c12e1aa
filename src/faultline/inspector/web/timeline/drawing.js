// The stale-worker timeline as SVG: which worker held the job when, and which commit PostgreSQL refused.
import { html, useEffect, useId, useRef, useState } from "../html.js";
import { layOut, readAttempts } from "./layout.js";
import { noteKind, TEXT, withTextWidth } from "./text_width.js";

const LANES_PER_STEP = 12;

export function Timeline({ timeline, summary }) {
  const frame = useRef(null);
  const [width, setWidth] = useState(0);
  const [lanesShown, setLanesShown] = useState(LANES_PER_STEP);
  useEffect(() => {
    const element = frame.current;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { shown, hidden } = newest(timeline, lanesShown);
  const layout = width > 0 ? withTextWidth(frame.current, (measure) => layOut(shown, width, measure)) : null;
  return html`<figure class="timeline">
    <div ref=${frame}>${layout && html`<${Drawing} layout=${layout} summary=${summary} />`}</div>
    ${hidden > 0 &&
    html`<button class="button" data-kind="quiet" data-size="small" type="button"
      onClick=${() => setLanesShown(lanesShown + LANES_PER_STEP)}>Show earlier attempts (${hidden} more)</button>`}
  </figure>`;
}

// A job may have a thousand attempts: only the newest are drawn, and a button shows more.
function newest(timeline, most) {
  const tokens = readAttempts(timeline).map(({ token }) => token);
  const hidden = Math.max(0, tokens.length - most);
  if (!hidden) return { shown: timeline, hidden };
  const kept = new Set(tokens.slice(hidden));
  return {
    hidden,
    shown: {
      ...timeline,
      attempts: timeline.attempts.filter(({ token }) => kept.has(token)),
      rejections: timeline.rejections.filter(({ stale_token: token }) => kept.has(token)),
    },
  };
}

function Drawing({ layout, summary }) {
  const titleId = useId();
  const { width, height, lanes, overlaps, takeovers } = layout;
  return html`<svg viewBox="0 0 ${width} ${height}" width=${width} height=${height} role="img" aria-labelledby=${titleId}>
    <title id=${titleId}>${summary}</title>
    <defs>
      <pattern id="faultline-hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="hatch-ground" width="7" height="7" />
        <line class="hatch-line" x1="0" y1="0" x2="0" y2="7" />
      </pattern>
    </defs>
    <${Axis} layout=${layout} />
    ${overlaps.map((overlap, index) => html`<${Overlap} key=${index} overlap=${overlap} />`)}
    ${takeovers.map((takeover, index) => html`<${Takeover} key=${index} takeover=${takeover} />`)}
    ${lanes.map((lane) => html`<${Lane} key=${lane.attempt.token} lane=${lane} />`)}
  </svg>`;
}

function Axis({ layout: { axisY, width, ticks, breaks } }) {
  return html`<g class="axis" aria-hidden="true">
    <line x1="0" x2=${width} y1=${axisY} y2=${axisY} />
    ${ticks.map(
      ({ x, label }, index) => html`<g key=${index}>
        <line x1=${x} x2=${x} y1="22" y2=${axisY} />
        ${label && html`<text ...${TEXT.axis} x=${label.x} y=${axisY + 18}>${label.text}</text>`}
      </g>`,
    )}
    ${breaks.map(
      ({ x, end, label }, index) => html`<g key=${index}>
        <line class="axis-break" x1=${x} x2=${x} y1="22" y2=${axisY + 6} />
        <line class="axis-break" x1=${end} x2=${end} y1="22" y2=${axisY + 6} />
        ${label && html`<text ...${TEXT.axis} x=${label.x} y=${axisY + 18}>${label.text}</text>`}
      </g>`,
    )}
  </g>`;
}

function Overlap({ overlap: { x, end, top, bottom, text, textX, textY } }) {
  return html`<g data-part="overlap">
    <rect class="overlap" x=${x} y=${top} width=${end - x} height=${bottom - top} />
    <line class="overlap-edge" x1=${x} x2=${x} y1=${textY + 4} y2=${bottom} />
    <line class="overlap-edge" x1=${end} x2=${end} y1=${textY + 4} y2=${bottom} />
    <text ...${TEXT.overlap} x=${textX} y=${textY}>${text}</text>
  </g>`;
}

function Takeover({ takeover: { x, y, toX, toY } }) {
  const path = `M${x} ${y}V${toY - 12}${toX === x ? "" : `H${toX}`}V${toY - 5}`;
  return html`<g data-part="takeover" aria-hidden="true">
    <path class="takeover" d=${path} />
    <path class="takeover-head" d="M${toX - 4} ${toY - 7}h8l-4 6z" />
  </g>`;
}

function Lane({ lane }) {
  const { attempt, tone, barY, barHeight, bar, late, tokenText, labelY, worker, detail, detailX, marks, noteY } = lane;
  return html`<g data-part="attempt" data-outcome=${attempt.outcome} data-token=${attempt.token}>
    <text ...${TEXT.worker} x="0" y=${labelY}>${worker}</text>
    <text ...${TEXT.detail} x=${detailX} y=${labelY}>${detail}</text>
    ${attempt.outcome !== "unknown" &&
    html`<rect class="bar" data-tone=${tone} x=${bar.x} y=${barY} width=${bar.width} height=${barHeight} rx="4" />`}
    ${late &&
    html`<rect class="late" data-part="late" x=${late.x} y=${barY + 0.5} width=${late.width} height=${barHeight - 1} />`}
    ${tokenText && html`<text ...${TEXT.token} data-tone=${tone} x=${bar.x + 9} y=${barY + 15.5}>${tokenText}</text>`}
    ${marks.map((mark, index) => html`<${Mark} key=${index} ...${{ mark, barY, barHeight, noteY }} />`)}
  </g>`;
}

function Mark({ mark: { x, tone, text, row, anchor, textX }, barY, barHeight, noteY }) {
  const y = noteY + 14 + row * 18;
  const hasIcon = tone === "bad" || tone === "good";
  const sign = anchor === "start" ? 1 : -1;
  const iconX = textX + sign * 6;
  return html`<g data-part=${tone === "bad" ? "refused" : tone === "good" ? "committed" : "note"}>
    <line class="mark" data-tone=${tone} x1=${x} x2=${x} y1=${barY - 4} y2=${barY + barHeight + 4} />
    ${row > 0 && html`<line class="leader" x1=${x} x2=${x} y1=${barY + barHeight + 4} y2=${y - 10} />`}
    ${hasIcon && html`<${StatusIcon} x=${iconX} y=${y - 4} tone=${tone} />`}
    <text ...${TEXT[noteKind(tone)]} x=${textX + sign * (hasIcon ? 16 : 2)} y=${y} text-anchor=${anchor}>${text}</text>
  </g>`;
}

function StatusIcon({ x, y, tone }) {
  const path = tone === "bad" ? `M${x - 2.5} ${y - 2.5}l5 5m0-5l-5 5` : `M${x - 3} ${y}l2.2 2.4l3.8-4.4`;
  return html`<circle class="status-icon" data-tone=${tone} cx=${x} cy=${y} r="6.5" /><path class="status-icon-sign" fill="none" d=${path} />`;
}
