// A page of jobs, searched for until it is full: the inspector looks for two seconds at a time, and says how to go on.
import { get, withQuery } from "./api.js";

const MOST_STEPS = 150; // five minutes
const LIVE_UP_TO = 5_000; // jobs looked at: a longer search is not made again every second

// For useResource. `limit`: rows of a page. `isStopped()` says that the reader wants no more.
// → {jobs, next, searched, searchedUntil, isSearching}; `searchedUntil` is null when the search came to its end.
export function searcher(limit, isStopped) {
  return async (path, signal, report) => {
    const found = { jobs: [], next: null, searched: 0, searchedUntil: null, isSearching: true };
    for (let step = 0; step < MOST_STEPS; step += 1) {
      const rest = { limit: limit - found.jobs.length, after: step ? found.next : undefined };
      const page = await get(extended(path, rest), signal);
      found.jobs = [...found.jobs, ...page.jobs];
      found.next = page.next;
      found.searched += page.searched ?? 0;
      found.searchedUntil = page.searched_until ?? null;
      if (!page.next || page.searched_until == null || found.jobs.length >= limit || isStopped()) break;
      report({ ...found });
    }
    return { ...found, isSearching: false };
  };
}

function extended(path, rest) {
  const [name, query] = path.split("?");
  return withQuery(name, { ...Object.fromEntries(new URLSearchParams(query)), ...defined(rest) });
}

function defined(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

export function isCheap({ searched, searchedUntil }) {
  return searchedUntil == null && searched <= LIVE_UP_TO;
}
