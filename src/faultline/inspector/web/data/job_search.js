// Searches for jobs until a page is full. The inspector searches for two seconds per request and returns a cursor.
import { get, withQuery } from "./api.js";

const MAX_REQUESTS = 150; // five minutes
const MAX_LIVE_SEARCHED = 5_000; // jobs: a longer search is not repeated every second

// Makes a `load` function for useResource. `limit`: rows per page. `isStopped()`: whether the user stopped the search.
// → {jobs, next, searched, searchedUntil, isSearching}; `searchedUntil` is null when all jobs were searched.
export function makeJobSearch(limit, isStopped) {
  return async (path, signal, report) => {
    const found = { jobs: [], next: null, searched: 0, searchedUntil: null, isSearching: true };
    for (let request = 0; request < MAX_REQUESTS; request += 1) {
      const rest = { limit: limit - found.jobs.length, after: request ? found.next : undefined };
      const page = await get(addToQuery(path, rest), signal);
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

function addToQuery(path, rest) {
  const [name, query] = path.split("?");
  return withQuery(name, { ...Object.fromEntries(new URLSearchParams(query)), ...defined(rest) });
}

function defined(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

export function isShortSearch({ searched, searchedUntil }) {
  return searchedUntil == null && searched <= MAX_LIVE_SEARCHED;
}
