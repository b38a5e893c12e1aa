// The positions of all elements of a job's timeline: one lane for each attempt, one time axis. Pure.
import { duration, humanize, shortenMiddle } from "../format.js";
import { noteKind } from "./text_width.js";
import { makeScale } from "./scale.js";

const TOP = 26; // room for the label of an overlap
const LABEL_HEIGHT = 20;
const BAR_HEIGHT = 22;
const NOTE_HEIGHT = 18;
const LANE_GAP = 18;
const AXIS_HEIGHT = 30;
const MIN_BAR_WIDTH = 3;
const LEFT = 1;
const RIGHT = 8;
const LABEL_GAP = 8; // between the worker's name and the details
const ICON_WIDTH = 22; // before a note
const TICK_GAP = 8;

const LOST_OUTCOMES = new Set(["expired", "worker_lost"]);
const TONES = { succeeded: "good", running: "accent", failed: "warn" };
const OUTCOME_NOTES = {
  succeeded: { text: "committed", tone: "good" },
  expired: { text: "lease expired", tone: "plain" },
  worker_lost: { text: "worker lost", tone: "plain" },
  failed: { text: "failed", tone: "warn" },
  released: { text: "released", tone: "plain" },
  snoozed: { text: "snoozed", tone: "plain" },
  cancelled: { text: "cancelled", tone: "plain" },
};

// `measure(kind, text)` → the text's width in pixels, from text_width.js.
export function layOut(timeline, width, measure) {
  const attempts = readAttempts(timeline);
  if (!attempts.length) return null;
  const scale = makeScale(attempts.flatMap(spansOf), LEFT, width - RIGHT);
  const notes = new Notes(width, measure);
  let top = TOP;
  const lanes = attempts.map((attempt, index) => {
    const lane = layOutLane(attempt, index, attempts, scale, top, notes, width, measure);
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

// The attempts in the order of their tokens, each with the refused writes of its worker.
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

// A lane for a refused write whose token belongs to no attempt; for example, one sent by hand in psql.
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

function layOutLane(attempt, index, attempts, scale, top, notes, width, measure) {
  const x = scale.at(attempt.from);
  const end = Math.max(scale.at(attempt.to), x + MIN_BAR_WIDTH);
  const barY = top + LABEL_HEIGHT;
  const tone = TONES[attempt.outcome] ?? "plain";
  const marks = [];
  const isTakeover = index > 0 && LOST_OUTCOMES.has(attempts[index - 1].outcome);
  if (isTakeover) marks.push({ x, tone: "plain", text: `took over, token ${attempt.token}` });
  const note = OUTCOME_NOTES[attempt.outcome];
  if (note) marks.push({ x: end, ...note });
  for (const refusal of attempt.refusals) {
    marks.push({ x: Math.max(scale.at(refusal.at), end), tone: "bad", text: refusalText(refusal, width) });
  }
  for (const mark of marks) mark.text = humanize(mark.text);
  const rows = notes.place(marks);
  const lastRefusalX = attempt.refusals.length ? Math.max(...attempt.refusals.map(({ at }) => scale.at(at))) : null;
  const tokenText = `token ${attempt.token}`;
  const hasRoom = end - x > measure("token", tokenText) + 22;
  const detail = fitText("detail", detailOf(attempt, hasRoom), width * 0.75, measure);
  const detailWidth = measure("detail", detail);
  const worker = fitText("worker", attempt.worker ?? "unknown worker", width - detailWidth - LABEL_GAP, measure);
  const detailX = Math.min(measure("worker", worker) + LABEL_GAP, width - detailWidth);
  return {
    attempt,
    tone,
    top,
    barY,
    barHeight: BAR_HEIGHT,
    bar: { x, width: end - x },
    late: lastRefusalX != null && lastRefusalX - end > 1 ? { x: end, width: lastRefusalX - end } : null,
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
function fitText(kind, text, room, measure) {
  if (measure(kind, text) <= room) return text;
  let fits = 1;
  let tooLong = text.length;
  while (tooLong - fits > 1) {
    const length = Math.floor((fits + tooLong) / 2);
    if (measure(kind, shortenMiddle(text, length)) <= room) fits = length;
    else tooLong = length;
  }
  return shortenMiddle(text, fits);
}

function refusalText({ reason }, width) {
  return width < 520 ? `refused: ${reason}` : `commit refused by PostgreSQL: ${reason}`;
}

function detailOf({ attempt, token, from, to, outcome }, isTokenShown) {
  if (outcome === "unknown") return `token ${token}, not of an attempt of this job`;
  return `attempt ${attempt}, ${isTokenShown ? "" : `token ${token}, `}${duration(to - from)}`;
}

// The times in which two attempts ran: from the takeover until one of them ended or was refused.
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
    const end = Math.max(scale.at(to), x + MIN_BAR_WIDTH);
    const label = `two attempts at once for ${duration(refusal.overlap_seconds || to - from)}`;
    const text = fitText("overlap", label, width, measure);
    overlaps.push({
      x,
      end,
      top: late.barY - 2,
      bottom: current.barY + BAR_HEIGHT + 2,
      text,
      textX: clampCentered((x + end) / 2, measure("overlap", text), width),
      textY: late.top - 8,
    });
  }
  return overlaps;
}

// The left edge of a text that is centred on `x`, moved so that the text stays inside the drawing.
function clampCentered(x, textWidth, width) {
  return Math.max(0, Math.min(x - textWidth / 2, width - textWidth));
}

// Ticks and breaks with their labels. A label that would touch the one before it is omitted.
function axisOf(scale, width, measure) {
  let free = 0; // the first free pixel
  const place = (x, text) => {
    const textWidth = measure("axis", text);
    const from = clampCentered(x, textWidth, width);
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

// The arrows from the end of a lost attempt to the start of the next one.
function takeoversOf(lanes) {
  return lanes.flatMap((lane, index) => {
    const next = lanes[index + 1];
    if (!next || !LOST_OUTCOMES.has(lane.attempt.outcome)) return [];
    const isUnderLabel = next.bar.x < next.labelWidth + 8; // the arrow ends above the label, not inside it
    const toY = isUnderLabel ? next.top + 2 : next.barY;
    return [{ x: lane.bar.x + lane.bar.width, y: lane.barY + BAR_HEIGHT, toX: next.bar.x, toY }];
  });
}

// Places the notes below a bar, each at its mark, in the first row where it overlaps no other note.
class Notes {
  constructor(width, measure) {
    this.width = width;
    this.measure = measure;
  }

  // Sets `text`, `row`, `textX` and `anchor` of the marks. → the number of rows
  place(marks) {
    const rows = [];
    for (const mark of marks) {
      const kind = noteKind(mark.tone);
      mark.text = fitText(kind, mark.text, this.width - ICON_WIDTH, this.measure);
      const room = this.measure(kind, mark.text) + ICON_WIDTH;
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
