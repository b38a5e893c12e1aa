// The stream of events, kept open: what the queue looked like a moment ago, and whether we still know.
// Where the inspector has no stream left for this page, the page polls until it has.
import { ApiError, explained, get } from "./api.js";
import { History } from "./history.js";
import { Store } from "./store.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
const HIDDEN_MS = 30_000;
const POLL_MS = 5_000;
const REJECTIONS_KEPT = 50;
// The stream speaks every five seconds even when nothing happens: silence this long means that it is dead.
// Unless the database is away: then there is nothing to say.
const SILENCE_LIMIT_MS = 15_000;

export const live = new Store({
  // "open": events arrive · "polling": no stream is free, so the page asks · "lost": the inspector does not answer
  link: "connecting",
  refusal: null, // while polling: what the inspector said
  database: { ok: null, reason: null },
  overview: null,
  heardAt: null, // when the last overview arrived, by this machine's clock
  rejections: [], // those seen since the page was opened, newest first
  unseenRejections: 0,
  ticks: 0, // goes up whenever there may be something new to fetch
});
export const history = new History();

let source = null;
let pause = FIRST_PAUSE_MS;
let watchdog = null;
let retry = null;

export function start() {
  connect();
  // A browser opens only six connections to one origin: tabs that nobody looks at must not hold them all.
  let leaving = null;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(disconnect, HIDDEN_MS);
    else if (source == null) connect();
  });
}

function disconnect() {
  source?.close();
  source = null;
  clearTimeout(watchdog);
  clearTimeout(retry);
}

function connect() {
  disconnect();
  source = new EventSource("api/stream");
  source.addEventListener("open", () => {
    pause = FIRST_PAUSE_MS;
    live.set({ link: "open", refusal: null });
    expectWords();
  });
  source.addEventListener("error", (event) => {
    if (event.target === source) onError();
  });
  source.addEventListener("overview", (event) => hear(event, onOverview));
  source.addEventListener("rejection", (event) => hear(event, onRejection));
  source.addEventListener("database", (event) => hear(event, onDatabase));
  expectWords();
}

// An EventSource does not tell the status of an answer: where it was an error, the page asks what it was.
async function onError() {
  const wasRefused = source.readyState === EventSource.CLOSED;
  const failed = source;
  const refusal = wasRefused ? await streamRefusal() : null;
  if (source !== failed) return; // reconnected meanwhile
  if (refusal) poll(refusal);
  else reconnect();
}

// → the inspector's error when every stream is taken, else null.
async function streamRefusal() {
  const leaving = new AbortController();
  try {
    const response = await fetch("api/stream", { signal: leaving.signal });
    if (response.ok) return null;
    const error = explained(response, await response.text());
    return error.code.startsWith("too_many_streams") ? error : null;
  } catch {
    return null;
  } finally {
    leaving.abort(); // an answer that is a stream would be one more
  }
}

// Asks once, then tries the stream again, which leads back here for as long as none is free.
async function poll(refusal) {
  disconnect();
  live.set({ link: "polling", refusal });
  retry = setTimeout(connect, POLL_MS);
  try {
    onOverview(await get("overview"), "polling");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.isUnreachable) live.set({ link: "lost" });
    else onDatabase({ ok: false, reason: error.message });
  }
}

// EventSource retries by itself, but gives up for good when the answer is an error page, as a proxy's would be.
function reconnect() {
  live.set({ link: "lost" });
  disconnect();
  retry = setTimeout(connect, pause * (0.75 + Math.random() / 2));
  pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
}

function expectWords() {
  clearTimeout(watchdog);
  if (live.value.database.ok !== false) watchdog = setTimeout(reconnect, SILENCE_LIMIT_MS);
}

function hear(event, handle) {
  let told;
  try {
    told = JSON.parse(event.data);
  } catch {
    return; // a torn event: the next one is whole
  }
  handle(told);
  expectWords();
}

function onOverview(overview, link = "open") {
  const database = overview.database ?? { ok: true };
  if (database.ok === false) {
    onDatabase(database);
    return;
  }
  history.add(overview);
  live.set({
    link,
    overview,
    heardAt: Date.now(),
    database: { ok: true, reason: null },
    ticks: live.value.ticks + 1,
  });
}

function onRejection(rejection) {
  const known = live.value.rejections.some((each) => each.id === rejection.id);
  if (known) return; // told again after a reconnect
  live.set({
    rejections: [rejection, ...live.value.rejections].slice(0, REJECTIONS_KEPT),
    unseenRejections: live.value.unseenRejections + 1,
    ticks: live.value.ticks + 1,
  });
}

function onDatabase({ ok, reason }) {
  live.set({ database: { ok, reason: reason ?? null }, ticks: live.value.ticks + 1 });
}

export function markRejectionsSeen() {
  if (live.value.unseenRejections) live.set({ unseenRejections: 0 });
}
