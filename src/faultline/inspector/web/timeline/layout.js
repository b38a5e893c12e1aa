// Where everything on a job's timeline goes: one lane for each attempt, on one axis of time. Pure.
import { duration, middle, words } from "../format.js";
import { noteKind } from "./ruler.js";
import { makeScale } from "./scale.js";

const TOP = 26; // for what is said about an overlap
const LABEL_HEIGHT = 20;
const BAR_HEIGHT = 22;
const NOTE_HEIGHT = 18;
const LANE_GAP = 18;
const AXIS_HEIGHT = 30;
const NARROWEST_BAR = 3;
const LEFT = 1;
const RIGHT = 8;
const LABEL_GAP = 8; // between a worker's name and what it did
const STAMP_WIDTH = 22; // before a note
const TICK_GAP = 8;

const TAKEN_AWAY = new Set(["expired", "worker_lost"]);
const TONES = { succeeded: "good", running: "accent", failed: "warn" };
const ENDINGS = {
  succeeded: { text: "committed", tone: "good" },
  expired: { text: "lease ran out", tone: "plain" },
  worker_lost: { text: "worker died", tone: "plain" },
  failed: { text: "failed", tone: "warn" },
  released: { text: "handed back", tone: "plain" },
  cancelled: { text: "cancelled", tone: "plain" },
};

// `measure(kind, text)` → its width in pixels, as ruler.js gives it.
export function layOut(timeline, width, measure) {
  const attempts = readAttempts(timeline);
  if (!attempts.length) return null;
  const scale = makeScale(attempts.flatMap(spansOf), LEFT, width - RIGHT);
  const notes = new Notes(width, measure);
  let top = TOP;
  const lanes = attempts.map((attempt, index) => {
    const lane = layLane(attempt, index, attempts, scale, top, notes, width, measure);
    top = lane.bottom + LANE_GAP;
    return lane;
  });
  const bottom = top - LANE_GAP + 10;
  return {
    width,
    height: bottom + AXIS_HEIGHT,
    axisY: bottom,
    lanes,
    overlaps: overlapsOf(lanes, scale, width, measure),
    takeovers: takeoversOf(lanes),
    ...axisOf(scale, width, measure),
    isRunning: attempts.some(({ outcome }) => outcome === "running"),
  };
}

// Attempts in the order of their tokens, each with the refusals that its worker ran into.
export function readAttempts(timeline) {
  const now = seconds(timeline.now);
  const attempts = timeline.attempts
    .map((each) => ({
      ...each,
      from: seconds(each.claimed_at),
      to: each.ended_at == null ? now : seconds(each.ended_at),
      refusals: [],
    }))
    .sort((a, b) => a.token - b.token);
  for (const refusal of timeline.rejections) {
    const at = seconds(refusal.rejected_at);
    const own = attempts.find(({ token }) => token === refusal.stale_token) ?? addUnknown(attempts, refusal, at);
    own.refusals.push({ ...refusal, at });
  }
  for (const attempt of attempts) {
    attempt.refusals.sort((a, b) => a.at - b.at);
    attempt.workedUntil = Math.max(attempt.to, ...attempt.refusals.map(({ at }) => at));
  }
  return attempts;
}

// A write under a token that no attempt is known for, such as one typed in by hand: a lane with nothing but the refusal.
function addUnknown(attempts, refusal, at) {
  const { stale_token: token, worker } = refusal;
  const unknown = { attempt: null, token, worker, from: at, to: at, outcome: "unknown", refusals: [] };
  attempts.push(unknown);
  attempts.sort((a, b) => a.token - b.token);
  return unknown;
}

function spansOf({ from, to, refusals }) {
  return [{ from, to }, ...refusals.map(({ at }) => ({ from: Math.min(to, at), to: at }))];
}

function layLane(attempt, index, attempts, scale, top, notes, width, measure) {
  const x = scale.at(attempt.from);
  const end = Math.max(scale.at(attempt.to), x + NARROWEST_BAR);
  const barY = top + LABEL_HEIGHT;
  const tone = TONES[attempt.outcome] ?? "plain";
  const marks = [];
  const isTakeover = index > 0 && TAKEN_AWAY.has(attempts[index - 1].outcome);
  if (isTakeover) marks.push({ x, tone: "plain", text: `took over, token ${attempt.token}` });
  const ending = ENDINGS[attempt.outcome];
  if (ending) marks.push({ x: end, ...ending });
  for (const refusal of attempt.refusals) {
    marks.push({ x: Math.max(scale.at(refusal.at), end), tone: "bad", text: refusalText(refusal, width) });
  }
  for (const mark of marks) mark.text = words(mark.text);
  const rows = notes.place(marks);
  const late = attempt.refusals.length ? Math.max(...attempt.refusals.map(({ at }) => scale.at(at))) : null;
  const tokenText = `token ${attempt.token}`;
  const hasRoom = end - x > measure("token", tokenText) + 22;
  const detail = fitted("detail", detailOf(attempt, hasRoom), width * 0.75, measure);
  const detailWidth = measure("detail", detail);
  const worker = fitted("worker", attempt.worker ?? "unknown worker", width - detailWidth - LABEL_GAP, measure);
  const detailX = Math.min(measure("worker", worker) + LABEL_GAP, width - detailWidth);
  return {
    attempt,
    tone,
    top,
    barY,
    barHeight: BAR_HEIGHT,
    bar: { x, width: end - x },
    ghost: late != null && late - end > 1 ? { x: end, width: late - end } : null,
    tokenText: hasRoom ? tokenText : null,
    worker,
    detail,
    detailX,
    labelY: top + 14,
    labelWidth: detailX + detailWidth,
    noteY: barY + BAR_HEIGHT,
    marks,
    bottom: barY + BAR_HEIGHT + rows * NOTE_HEIGHT,
  };
}

// The text, shortened in its middle until it fits into `room` pixels.
function fitted(kind, text, room, measure) {
  if (measure(kind, text) <= room) return text;
  let fits = 1;
  let tooLong = text.length;
  while (tooLong - fits > 1) {
    const length = Math.floor((fits + tooLong) / 2);
    if (measure(kind, middle(text, length)) <= room) fits = length;
    else tooLong = length;
  }
  return middle(text, fits);
}

function refusalText({ reason }, width) {
  return width < 520 ? `refused: ${reason}` : `commit refused by PostgreSQL: ${reason}`;
}

function detailOf({ attempt, token, from, to, outcome }, isTokenShown) {
  if (outcome === "unknown") return `token ${token}, no attempt of this job`;
  return `attempt ${attempt}, ${isTokenShown ? "" : `token ${token}, `}${duration(to - from)}`;
}

// Both at work: from the takeover until one of them ended or was refused.
function overlapsOf(lanes, scale, width, measure) {
  const overlaps = [];
  for (const late of lanes) {
    const refusal = late.attempt.refusals.at(-1);
    if (!refusal) continue;
    const current = lanes.find((lane) => lane.attempt.token > late.attempt.token && lane.attempt.from < refusal.at);
    if (!current) continue;
    const from = current.attempt.from;
    const to = Math.min(refusal.at, current.attempt.workedUntil);
    const x = scale.at(from);
    const end = Math.max(scale.at(to), x + NARROWEST_BAR);
    const said = `both at work for ${duration(refusal.overlap_seconds || to - from)}`;
    const text = fitted("overlap", said, width, measure);
    overlaps.push({
      x,
      end,
      top: late.barY - 2,
      bottom: current.barY + BAR_HEIGHT + 2,
      text,
      textX: within((x + end) / 2, measure("overlap", text), width),
      textY: late.top - 8,
    });
  }
  return overlaps;
}

// Where a text begins that is centred on `x`, or as close to that as the drawing is wide.
function within(x, textWidth, width) {
  return Math.max(0, Math.min(x - textWidth / 2, width - textWidth));
}

// Ticks and cuts with their labels, each inside the drawing. A label that would touch the one before it is left out.
function axisOf(scale, width, measure) {
  let free = 0; // from here on
  const place = (x, text) => {
    const textWidth = measure("axis", text);
    const from = within(x, textWidth, width);
    if (from < free || textWidth > width) return null;
    free = from + textWidth + TICK_GAP;
    return { x: from, text };
  };
  return {
    ticks: scale.ticks.map((at) => {
      const x = scale.at(at);
      return { x, label: place(x, at === scale.start ? "0" : duration(at - scale.start)) };
    }),
    breaks: scale.breaks.map((gap) => ({ ...gap, label: place((gap.x + gap.end) / 2, `${duration(gap.seconds)} later`) })),
  };
}

// An arrow from where one worker lost the job to where the next one took it.
function takeoversOf(lanes) {
  return lanes.flatMap((lane, index) => {
    const next = lanes[index + 1];
    if (!next || !TAKEN_AWAY.has(lane.attempt.outcome)) return [];
    const isUnderLabel = next.bar.x < next.labelWidth + 8; // the arrow ends above the words, not in them
    const toY = isUnderLabel ? next.top + 2 : next.barY;
    return [{ x: lane.bar.x + lane.bar.width, y: lane.barY + BAR_HEIGHT, toX: next.bar.x, toY }];
  });
}

// Words below a bar, each at its mark: on the first row where they do not run into others.
class Notes {
  constructor(width, measure) {
    this.width = width;
    this.measure = measure;
  }

  // Writes `text`, `row`, `textX` and `anchor` into the marks. → how many rows were used
  place(marks) {
    const rows = [];
    for (const mark of marks) {
      const kind = noteKind(mark.tone);
      mark.text = fitted(kind, mark.text, this.width - STAMP_WIDTH, this.measure);
      const room = this.measure(kind, mark.text) + STAMP_WIDTH;
      const fitsRight = mark.x + room <= this.width;
      const from = fitsRight ? mark.x : Math.max(0, Math.min(mark.x, this.width) - room);
      mark.anchor = fitsRight ? "start" : "end";
      mark.textX = fitsRight ? mark.x : Math.max(mark.x, room);
      const to = from + room;
      let row = rows.findIndex((taken) => taken.every((each) => to <= each.from || from >= each.to));
      if (row < 0) row = rows.push([]) - 1;
      rows[row].push({ from, to });
      mark.row = row;
    }
    return rows.length;
  }
}

export function seconds(time) {
  return Date.parse(time) / 1000;
}
