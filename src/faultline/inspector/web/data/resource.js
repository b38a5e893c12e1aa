// A document of the inspector's API: fetched when the page opens, and again after every event of the stream.
import { useEffect, useRef, useState } from "../html.js";
import { get } from "./api.js";
import { live } from "./live.js";

const MIN_INTERVAL_MS = 900;
const EMPTY = { path: null, data: null, error: null, fetchedAt: null };

// `load(path, signal, report)` fetches the document; `report` shows a partial result. `isLive`: whether to fetch again
// after events, or a function of the data that decides it.
// → {data, error, fetchedAt, isLoading, reload}. After an error `data` still holds the last result.
export function useResource(path, { isLive = true, load = get } = {}) {
  const [state, setState] = useState(EMPTY);
  const reload = useRef(() => {});

  useEffect(() => {
    if (path == null) return undefined;
    const cancellation = new AbortController();
    let isFetching = false;
    let needsRefetch = false;
    let timer = null;
    let startedAt = 0;
    let latest = null;

    function show(data) {
      if (!cancellation.signal.aborted) setState({ path, data, error: null, fetchedAt: Date.now() });
    }

    async function fetchNow() {
      isFetching = true;
      startedAt = Date.now();
      try {
        const data = await load(path, cancellation.signal, (partial) => latest == null && show(partial));
        latest = data;
        show(data);
      } catch (error) {
        if (cancellation.signal.aborted) return;
        setState((before) => ({ ...(before.path === path ? before : EMPTY), path, error }));
      }
      isFetching = false;
      if (needsRefetch) scheduleFetch();
    }

    // At most one request at a time, about one a second, and none while the page is hidden.
    function scheduleFetch() {
      if (typeof isLive === "function" && latest != null && !isLive(latest)) return;
      if (isFetching || timer) {
        needsRefetch = isFetching;
        return;
      }
      needsRefetch = false;
      const wait = Math.max(0, startedAt + MIN_INTERVAL_MS - Date.now());
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
            scheduleFetch();
          }
        })
      : () => {};
    return () => {
      cancellation.abort();
      clearTimeout(timer);
      stop();
    };
  }, [path, Boolean(isLive)]);

  const current = state.path === path ? state : EMPTY;
  const isLoading = path != null && current.data == null && current.error == null;
  return { ...current, isLoading, reload: () => reload.current() };
}
