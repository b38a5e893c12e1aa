// The inspector's event stream and the latest state received from it. Reconnects with backoff.
// If the inspector has reached its limit of streams, the page polls until a stream is free.
import { ApiError, get, toApiError } from "./api.js";
import { History } from "./history.js";
import { Store } from "./store.js";

const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;
const HIDDEN_MS = 30_000; // a page hidden for this long closes its stream
const POLL_MS = 5_000;
const MAX_REJECTIONS = 50;
// The stream sends an overview every 5 s, even from an idle queue, but nothing while the database is unreachable.
// Without an event for this long the page reconnects, unless the database is known to be unreachable.
const SILENCE_LIMIT_MS = 15_000;

export const live = new Store({
  // "connecting", "open" (events arrive), "polling" (no stream is free) or "lost" (the inspector does not respond)
  connection: "connecting",
  refusal: null, // while polling: the inspector's error
  database: { ok: null, reason: null },
  overview: null,
  receivedAt: null, // when the last overview arrived, by the browser's clock
  rejections: [], // those that arrived since the page was opened, newest first
  unseenRejections: 0,
  ticks: 0, // incremented whenever there may be new data to fetch
});
export const history = new History();

let source = null;
let retryDelay = FIRST_RETRY_MS;
let watchdog = null;
let retryTimer = null;

export function startLiveUpdates() {
  connect();
  // A browser opens only six connections to one origin: hidden tabs must not hold them all.
  let hiddenTimer = null;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(disconnect, HIDDEN_MS);
    else if (source == null) connect();
  });
}

function disconnect() {
  source?.close();
  source = null;
  clearTimeout(watchdog);
  clearTimeout(retryTimer);
}

function connect() {
  disconnect();
  source = new EventSource("api/stream");
  source.addEventListener("open", () => {
    retryDelay = FIRST_RETRY_MS;
    live.set({ connection: "open", refusal: null });
    restartWatchdog();
  });
  source.addEventListener("error", (event) => {
    if (event.target === source) onError();
  });
  source.addEventListener("overview", (event) => handleEvent(event, onOverview));
  source.addEventListener("rejection", (event) => handleEvent(event, onRejection));
  source.addEventListener("database", (event) => handleEvent(event, onDatabase));
  restartWatchdog();
}

// An EventSource hides the status of an error response, so the page sends the request again with fetch().
async function onError() {
  const isErrorResponse = source.readyState === EventSource.CLOSED;
  const failedSource = source;
  const refusal = isErrorResponse ? await streamRefusal() : null;
  if (source !== failedSource) return; // reconnected meanwhile
  if (refusal) poll(refusal);
  else reconnect();
}

// → the inspector's error if every stream is in use, else null.
async function streamRefusal() {
  const cancellation = new AbortController();
  try {
    const response = await fetch("api/stream", { signal: cancellation.signal });
    if (response.ok) return null;
    const error = toApiError(response, await response.text());
    return error.code.startsWith("too_many_streams") ? error : null;
  } catch {
    return null;
  } finally {
    cancellation.abort(); // a successful response would be one more open stream
  }
}

// Fetches the overview once, then tries the stream again; if none is free, onError() calls poll() again.
async function poll(refusal) {
  disconnect();
  live.set({ connection: "polling", refusal });
  retryTimer = setTimeout(connect, POLL_MS);
  try {
    onOverview(await get("overview"), "polling");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.isUnreachable) live.set({ connection: "lost" });
    else onDatabase({ ok: false, reason: error.message });
  }
}

// EventSource reconnects by itself, but not after an error response, such as a proxy's error page.
function reconnect() {
  live.set({ connection: "lost" });
  disconnect();
  retryTimer = setTimeout(connect, retryDelay * (0.75 + Math.random() / 2));
  retryDelay = Math.min(retryDelay * 2, MAX_RETRY_MS);
}

function restartWatchdog() {
  clearTimeout(watchdog);
  if (live.value.database.ok !== false) watchdog = setTimeout(reconnect, SILENCE_LIMIT_MS);
}

function handleEvent(event, handler) {
  let data;
  try {
    data = JSON.parse(event.data);
  } catch {
    return; // an incomplete event: wait for the next one
  }
  handler(data);
  restartWatchdog();
}

function onOverview(overview, connection = "open") {
  const database = overview.database ?? { ok: true };
  if (database.ok === false) {
    onDatabase(database);
    return;
  }
  history.add(overview);
  live.set({
    connection,
    overview,
    receivedAt: Date.now(),
    database: { ok: true, reason: null },
    ticks: live.value.ticks + 1,
  });
}

function onRejection(rejection) {
  const known = live.value.rejections.some((each) => each.id === rejection.id);
  if (known) return; // sent again after a reconnect
  live.set({
    rejections: [rejection, ...live.value.rejections].slice(0, MAX_REJECTIONS),
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
