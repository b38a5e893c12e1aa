// Formats numbers, durations and times for display. Pure.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
export const MISSING = "–";

export function count(value) {
  return value == null ? MISSING : whole.format(value);
}

// Puts ~ before an estimate. Values below `least` are exact even if `isExact` is false.
export function countOrEstimate(value, isExact, least = 1000) {
  if (value == null) return MISSING;
  if (isExact !== false || value < least) return whole.format(value);
  return `~${value < 1000 ? whole.format(value) : short.format(value)}`;
}

export function compact(value) {
  if (value == null) return MISSING;
  return Math.abs(value) < 10000 ? whole.format(Math.round(value)) : short.format(value);
}

export function rate(value) {
  if (value == null) return MISSING;
  return value > 0 && value < 100 ? tenth.format(value) : compact(value);
}

export function percent(share, digits = 0) {
  return share == null ? MISSING : `${(share * 100).toFixed(digits)} %`;
}

export function duration(seconds) {
  if (seconds == null) return MISSING;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return twoUnits(minutes, "min", Math.round(seconds) % 60, "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return twoUnits(hours, "h", minutes % 60, "min");
  return `${whole.format(Math.floor(hours / 24))} d`;
}

function twoUnits(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dayAndYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

// Local time of day; with the date if the date is not today.
export function clockTime(time, now = new Date()) {
  if (time == null) return MISSING;
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return String(time);
  if (at.toDateString() === now.toDateString()) return clock.format(at);
  const date = at.getFullYear() === now.getFullYear() ? day : dayAndYear;
  return `${date.format(at)}, ${clock.format(at)}`;
}

// A time with an offset, such as 2026-03-29T03:00:00+02:00, as clocks at that offset show it.
export function plannedTime(time, now = new Date()) {
  const shown = /^(\d{4})-\d\d-\d\dT(\d\d:\d\d:\d\d)/.exec(time);
  if (!shown) return String(time);
  const [text, year, timeOfDay] = shown;
  const date = Number(year) === now.getFullYear() ? weekday : weekdayAndYear;
  return `${date.format(new Date(`${text}Z`)).replace(",", "")}, ${timeOfDay}`;
}

const utc = { timeZone: "UTC", weekday: "short", day: "numeric", month: "short" };
const weekday = new Intl.DateTimeFormat("en-GB", utc);
const weekdayAndYear = new Intl.DateTimeFormat("en-GB", { ...utc, year: "numeric" });

// UUIDs of version 7 begin with the time, so jobs enqueued together differ only in the last characters.
export function shortId(id) {
  return id.length > 14 ? `${id.slice(0, 4)}…${id.slice(-8)}` : id;
}

export function shortenMiddle(text, length) {
  if (text.length <= length) return text;
  if (length < 4) return text.slice(0, Math.max(1, length - 1)) + "…";
  const head = Math.ceil((length - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (length - 1 - head))}`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// "lease_expired" becomes "lease expired".
export function humanize(name) {
  return String(name ?? "").replaceAll("_", " ");
}

// Adds a capital letter at the beginning. Unlike sentence(), fits texts that end with a command.
export function capitalize(text) {
  return text && text[0].toUpperCase() + text.slice(1);
}

// Adds a capital letter at the beginning and a full stop at the end.
export function sentence(text) {
  return text && capitalize(text) + (/[.!?…]$/.test(text) ? "" : ".");
}

export function isJobId(text) {
  return /^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$/i.test(text.trim());
}
