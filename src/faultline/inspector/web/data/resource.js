// One document of the inspector, fetched when the page opens and again whenever the stream says that something moved.
import { useEffect, useRef, useState } from "../html.js";
import { get } from "./api.js";
import { live } from "./live.js";

const SHORTEST_PAUSE_MS = 900;
const EMPTY = { path: null, data: null, error: null, fetchedAt: null };

// `load(path, signal, report)` fetches it; it may report what it has so far. `isLive`: whether to fetch again,
// or a function of the data that says so.
// → {data, error, fetchedAt, isLoading, reload}. After an error `data` is still what was last seen.
export function useResource(path, { isLive = true, load = get } = {}) {
  const [state, setState] = useState(EMPTY);
  const reload = useRef(() => {});

  useEffect(() => {
    if (path == null) return undefined;
    const leaving = new AbortController();
    let isUnderWay = false;
    let wantsAgain = false;
    let timer = null;
    let startedAt = 0;
    let latest = null;

    function show(data) {
      if (!leaving.signal.aborted) setState({ path, data, error: null, fetchedAt: Date.now() });
    }

    async function fetchNow() {
      isUnderWay = true;
      startedAt = Date.now();
      try {
        const data = await load(path, leaving.signal, (partial) => latest == null && show(partial));
        latest = data;
        show(data);
      } catch (error) {
        if (leaving.signal.aborted) return;
        setState((before) => ({ ...(before.path === path ? before : EMPTY), path, error }));
      }
      isUnderWay = false;
      if (wantsAgain) ask();
    }

    // However fast events come: one request at a time, about one a second, none for a hidden page.
    function ask() {
      if (typeof isLive === "function" && latest != null && !isLive(latest)) return;
      if (isUnderWay || timer) {
        wantsAgain = isUnderWay;
        return;
      }
      wantsAgain = false;
      const wait = Math.max(0, startedAt + SHORTEST_PAUSE_MS - Date.now());
      timer = setTimeout(() => {
        timer = null;
        if (!document.hidden) fetchNow();
      }, wait);
    }

    reload.current = () => {
      latest = null;
      return fetchNow();
    };
    fetchNow();
    let seen = live.value.ticks;
    const stop = isLive
      ? live.watch(({ ticks }) => {
          if (ticks !== seen) {
            seen = ticks;
            ask();
          }
        })
      : () => {};
    return () => {
      leaving.abort();
      clearTimeout(timer);
      stop();
    };
  }, [path, Boolean(isLive)]);

  const current = state.path === path ? state : EMPTY;
  const isLoading = path != null && current.data == null && current.error == null;
  return { ...current, isLoading, reload: () => reload.current() };
}
