// The last minutes of overview data, as columns for the charts. Keeps at most MAX_POINTS points.

const MAX_POINTS = 900;
const GAP_SECONDS = 12; // the stream sends an overview at least every 5 s: a longer gap is an interruption

export class History {
  #rows = [];
  version = 0;

  add(overview) {
    const at = Date.parse(overview.now) / 1000;
    const last = this.#rows.at(-1);
    if (last && at <= last.at) return;
    if (last && at - last.at > GAP_SECONDS) this.#push({ at: last.at + 1 }); // a gap in the chart, not a straight line across it
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
    if (this.#rows.length > MAX_POINTS) this.#rows.shift();
    this.version += 1;
  }

  // The time of the first point, in seconds.
  get start() {
    return this.#rows[0]?.at ?? null;
  }

  columns(...names) {
    return ["at", ...names].map((name) => this.#rows.map((row) => row[name] ?? null));
  }
}
