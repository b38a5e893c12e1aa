// Maps times to pixels. Long gaps between attempts are shortened and marked as breaks. Pure.

const GAP_SHARE = 0.5; // a gap is shortened if it is longer than this share of the time in which attempts ran
const CUT_SHARE = 0.12; // the width of a shortened gap, as a share of that time
const MIN_SECONDS = 0.02; // the shortest time axis

// `spans`: [{from, to}] in seconds, the times in which attempts ran. → {at(seconds) → x, breaks, ticks}
export function makeScale(spans, left, right) {
  const busy = merge(spans);
  const start = busy[0].from;
  const worked = Math.max(MIN_SECONDS, busy.reduce((sum, { from, to }) => sum + to - from, 0));
  const pieces = []; // {from, to, weight}: a time span and its share of the axis
  busy.forEach(({ from, to }, index) => {
    const before = busy[index - 1];
    if (before) {
      const gap = from - before.to;
      const isCut = gap > worked * GAP_SHARE;
      pieces.push({ from: before.to, to: from, weight: isCut ? worked * CUT_SHARE : gap, isCut });
    }
    pieces.push({ from, to: Math.max(to, from), weight: to - from, isCut: false });
  });
  const total = Math.max(MIN_SECONDS, pieces.reduce((sum, { weight }) => sum + weight, 0));
  let passed = 0;
  for (const piece of pieces) {
    piece.x = left + (passed / total) * (right - left);
    passed += piece.weight;
    piece.end = left + (passed / total) * (right - left);
  }
  const at = (seconds) => {
    const piece = pieces.find(({ to }) => seconds <= to) ?? pieces.at(-1);
    const length = piece.to - piece.from;
    const share = length > 0 ? Math.min(1, Math.max(0, (seconds - piece.from) / length)) : 0;
    return piece.x + share * (piece.end - piece.x);
  };
  const breaks = pieces.filter(({ isCut }) => isCut).map(({ from, to, x, end }) => ({ x, end, seconds: to - from }));
  const end = pieces.at(-1).to;
  return { at, breaks, ticks: breaks.length ? [] : ticks(start, end, right - left), start, end };
}

export function merge(spans) {
  const merged = [];
  for (const { from, to } of [...spans].sort((a, b) => a.from - b.from)) {
    const last = merged.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else merged.push({ from, to });
  }
  return merged;
}

// Round numbers of seconds since the start, as many as fit.
function ticks(start, end, width) {
  const length = end - start;
  const most = Math.max(2, Math.floor(width / 68));
  const step = niceStep(length / most);
  if (!(step > 0)) return [start];
  const found = [];
  for (let offset = 0; offset <= length * 1.0001 && found.length < 40; offset += step) found.push(start + offset);
  return found;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];

function niceStep(seconds) {
  if (seconds > 1) return STEPS.find((step) => step >= seconds) ?? Math.ceil(seconds / 86400) * 86400;
  const power = 10 ** Math.floor(Math.log10(Math.max(seconds, 1e-6)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= seconds * 0.999);
}
