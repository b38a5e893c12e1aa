// The last minutes of the overview as columns for the charts. Bounded, whatever the page sees.

const POINTS_KEPT = 900;
const GAP_SECONDS = 12; // the stream speaks at least every five: longer means that it was cut off

export class History {
  #rows = [];
  version = 0;

  add(overview) {
    const at = Date.parse(overview.now) / 1000;
    const last = this.#rows.at(-1);
    if (last && at <= last.at) return;
    if (last && at - last.at > GAP_SECONDS) this.#push({ at: last.at + 1 }); // a hole, not a straight line over it
    this.#push({
      at,
      rate: overview.throughput?.succeeded_per_second ?? null,
      due: overview.totals?.due ?? null,
      running: overview.totals?.running ?? null,
      oldest: overview.oldest_due_seconds ?? 0,
      wait: overview.latency?.wait_p50_seconds ?? null,
      slowWait: overview.latency?.wait_p95_seconds ?? null,
    });
  }

  #push(row) {
    this.#rows.push(row);
    if (this.#rows.length > POINTS_KEPT) this.#rows.shift();
    this.version += 1;
  }

  // When the first of them was, in seconds.
  get start() {
    return this.#rows[0]?.at ?? null;
  }

  columns(...names) {
    return ["at", ...names].map((name) => this.#rows.map((row) => row[name] ?? null));
  }
}
