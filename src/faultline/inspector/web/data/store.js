// An observable value: components that use it render again when it changes.
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

// Renders again only when the value that `select` returns has changed.
export function useStore(store, select = (value) => value) {
  const [selected, setSelected] = useState(() => select(store.value));
  useEffect(() => {
    const update = () => setSelected(() => select(store.value));
    update(); // the value may have changed since the first rendering
    return store.watch(update);
  }, [store]);
  return selected;
}
