// graphile-worker: PostgreSQL, Node. Jobs are fetched 500 at a time into a local queue and completed in batches.

import { hold, isFlaky, library, main, noteStart, send, WORKLOAD } from "../roles.mjs";

const { Logger, makeWorkerUtils, run, runMigrations } = library("graphile-worker", import.meta.filename);

const quiet = new Logger(() => () => {});

// Without these, the defaults: a job is fetched by itself and completed by itself before the next one. Recovery is
// measured at the defaults.
const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const isOneByOne = WORKLOAD === "write_each" || WORKLOAD === "recovery";

function preset(url, concurrency) {
  return {
    worker: {
      connectionString: url,
      concurrentJobs: concurrency,
      maxPoolSize: concurrency + 1,
      ...(isOneByOne ? {} : batching),
      // How soon a retry that has become due is seen: nobody is notified of those.
      pollInterval: 100,
      logger: quiet,
    },
  };
}

async function prepare(url) {
  await runMigrations({ preset: preset(url, 1) });
}

async function enqueue(url, asked) {
  const utils = await makeWorkerUtils({ preset: preset(url, 1) });
  await utils.addJobs([]);
  const spec = (payload) => ({ identifier: asked.task, payload });
  await send(
    asked,
    (payload) => utils.addJob(asked.task, payload),
    (payloads) => utils.addJobs(payloads.map(spec)),
  );
  await utils.release();
}

const taskList = {
  noop: noteStart,
  stamp: noteStart,
  hold,
  write: async (payload, helpers) => {
    noteStart(payload);
    // The job is completed by the worker's own statement, later: a handler cannot join that transaction.
    await helpers.query("INSERT INTO bench_effects (n) VALUES ($1)", [payload.n]);
  },
  flaky: (payload, helpers) => {
    noteStart(payload);
    if (isFlaky(payload) && helpers.job.attempts === 1) throw new Error("fails at its first attempt");
  },
};

async function work(url, concurrency) {
  const runner = await run({ preset: preset(url, concurrency), taskList });
  await runner.promise;
}

await main({ prepare, enqueue, work });
