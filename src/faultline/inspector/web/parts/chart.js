// A line chart of the last minutes, drawn by uPlot on a canvas in the theme's colours.
import { html, useEffect, useRef } from "../html.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 132;
const MIN_SPAN_SECONDS = 60;
const MAX_SPAN_SECONDS = 600;
const AXIS_FONT_SIZE = "11px";
const AXIS_GAP = 12; // beside a label
const MIN_AXIS_WIDTH = 30;

// `columns`: as History.columns gives them. `series`: [{label, colour: "accent" | "muted-fill", isFilled}].
// `least`: the smallest maximum of the y axis. `steps`: the allowed distances between its labels.
export function Chart({ label, columns, series, format, now, start, version, least = 4, steps }) {
  const element = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  latest.current = { columns, now, start };

  useEffect(() => {
    const frame = element.current;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(frame, { series, format, least, steps }), latest.current.columns, frame);
      showLatest(plot.current, latest.current);
    };
    draw();
    const resize = new ResizeObserver(() => {
      plot.current.setSize({ width: frame.clientWidth, height: HEIGHT });
    });
    resize.observe(frame);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    addEventListener("faultline-theme", draw);
    return () => {
      resize.disconnect();
      scheme.removeEventListener("change", draw);
      removeEventListener("faultline-theme", draw);
      plot.current.destroy();
    };
  }, []);

  useEffect(() => {
    if (plot.current) showLatest(plot.current, latest.current);
  }, [version, now]);

  return html`<div class="chart" ref=${element} role="img" aria-label=${label}></div>`;
}

// The x axis ends now. It grows with the data up to MAX_SPAN_SECONDS, then moves.
function showLatest(plot, { columns, now, start }) {
  const known = start == null ? 0 : now - start;
  const span = Math.min(MAX_SPAN_SECONDS, Math.max(MIN_SPAN_SECONDS, known));
  plot.batch(() => {
    plot.setData(columns, false);
    plot.setScale("x", { min: now - span, max: now });
  });
}

function options(element, { series, format, least, steps }) {
  const ink = colour(element, "--ink-faint");
  const line = colour(element, "--line");
  const font = `${AXIS_FONT_SIZE} ${getComputedStyle(element).fontFamily}`;
  const axis = { stroke: ink, font, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 7 }, drag: { setScale: false, x: false } },
    padding: [8, (plot) => axisWidth(plot.ctx, font, ["00:00:00"]) / 2, 0, 0], // a time is centred on its tick
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(high ?? 0, least) * 1.15] } },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 84,
        size: 24,
        values: (_plot, times, _axis, _space, step) => times.map((time) => clock(time, step < 60)),
      },
      {
        ...axis,
        grid: { stroke: line, width: 1 },
        space: 34,
        size: (plot, labels) => axisWidth(plot.ctx, font, labels),
        incrs: steps,
        values: (_plot, values) => values.map(format),
      },
    ],
    series: [
      {},
      ...series.map(({ label, colour: name, isFilled }) => ({
        label,
        stroke: colour(element, `--${name}`),
        fill: isFilled ? faded(colour(element, `--${name}`)) : undefined,
        width: 1.75,
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
}

// The width of the widest label plus a gap, so that no label is cut off.
function axisWidth(context, font, labels) {
  if (!labels?.length) return MIN_AXIS_WIDTH;
  context.save();
  context.font = font;
  const widest = Math.max(...labels.map((label) => context.measureText(label ?? "").width));
  context.restore();
  return Math.max(MIN_AXIS_WIDTH, Math.ceil(widest) + AXIS_GAP);
}

function clock(seconds, withSeconds) {
  const parts = { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined };
  return new Date(seconds * 1000).toLocaleTimeString("en-GB", parts);
}

// Resolves a custom property to a colour. It may hold light-dark(…), which only an element's computed style resolves.
function colour(element, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

function faded(rgb) {
  return rgb.replace(/^rgb\((.*)\)$/, "rgba($1, 0.1)");
}
