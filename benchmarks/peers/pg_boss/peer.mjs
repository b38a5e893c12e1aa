// pg-boss: PostgreSQL, Node. Jobs are fetched and completed in batches, and NOTIFY wakes an idle worker.

import { isFlaky, library, main, noteStart, send, WORKLOAD } from "../roles.mjs";

const { PgBoss } = library("pg-boss", import.meta.filename);

const isOneByOne = WORKLOAD === "write_each";
const BATCH = { batchSize: 1000, localConcurrency: 3, burstWhenBatchFull: true };

// A worker that has had its one job fetches the next at once only while the count of waiting jobs, which the monitor keeps
// and this process reads, is above the bound; so both are done as often as can be.
const ONE_BY_ONE = {
  batchSize: 1,
  localConcurrency: 10,
  burstWhenReadyExceeds: 1,
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
};
const COUNTED_OFTEN = { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1, queueCacheIntervalSeconds: 1 };

async function begin(jobs) {
  for (const job of jobs) noteStart(job.data);
}

async function write(jobs, transaction) {
  for (const { data } of jobs) {
    noteStart(data);
    await transaction.executeSql("INSERT INTO bench_effects (n) VALUES ($1)", [data.n]);
  }
}

async function flaky(jobs) {
  return jobs.map(({ id, data, retryCount }) => {
    noteStart(data);
    return { id, status: isFlaky(data) && retryCount === 0 ? "failed" : "completed" };
  });
}

// A handler gets a batch, all in one call, so C has no meaning here. A transactional batch is finished in one transaction
// with what its handler wrote.
const TASKS = {
  noop: [BATCH, begin],
  stamp: [BATCH, begin],
  write: [{ ...(isOneByOne ? ONE_BY_ONE : { ...BATCH, batchSize: 500, localConcurrency: 4 }), transactional: true }, write],
  // Nobody is notified of a retry: it is found by polling, no faster than this.
  flaky: [
    { ...BATCH, perJobResults: true, includeMetadata: true, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 },
    flaky,
  ],
};

async function open(url, options) {
  const boss = new PgBoss({ connectionString: url, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function prepare(url) {
  const boss = await open(url, { supervise: false });
  for (const task of Object.keys(TASKS)) await boss.createQueue(task, { notify: true, retryDelay: 0 });
  await boss.stop();
}

async function enqueue(url, asked) {
  const boss = await open(url, { supervise: false, migrate: false });
  await boss.getQueue(asked.task);
  await send(
    asked,
    (payload) => boss.send(asked.task, payload),
    (payloads) => boss.insert(asked.task, payloads.map((data) => ({ data }))),
  );
  await boss.stop();
}

async function work(url) {
  const boss = await open(url, { migrate: false, max: 20, useListenNotify: true, ...(isOneByOne ? COUNTED_OFTEN : {}) });
  process.once("SIGTERM", () => boss.stop());
  for (const [task, [options, handler]] of Object.entries(TASKS)) {
    await boss.work(task, options, handler);
  }
}

await main({ prepare, enqueue, work });
