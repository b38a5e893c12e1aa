// A value that parts of the page watch.
import { useEffect, useState } from "../html.js";

export class Store {
  #watchers = new Set();

  constructor(value) {
    this.value = value;
  }

  set(change) {
    this.value = { ...this.value, ...change };
    for (const watcher of [...this.#watchers]) watcher(this.value);
  }

  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

// Renders again only when what `select` picks has changed.
export function useStore(store, select = (value) => value) {
  const [picked, setPicked] = useState(() => select(store.value));
  useEffect(() => {
    const look = () => setPicked(() => select(store.value));
    look(); // it may have changed between the first rendering and now
    return store.watch(look);
  }, [store]);
  return picked;
}
