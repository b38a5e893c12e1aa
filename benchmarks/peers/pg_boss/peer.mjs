// pg-boss: PostgreSQL, Node. Jobs are fetched and completed in batches, and NOTIFY wakes an idle worker.

import { isFlaky, library, main, noteStart, send } from "../roles.mjs";

const { PgBoss } = library("pg-boss", import.meta.filename);

const BATCH = { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true };

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

// What `work` is told of each task. A batch is finished in one transaction, together with what its handler wrote in it;
// without batches a worker would sleep for half a second after every job.
const tasks = (concurrency) => ({
  noop: [BATCH, begin],
  stamp: [BATCH, begin],
  write: [{ ...BATCH, batchSize: 100, localConcurrency: concurrency, transactional: true }, write],
  // Nobody is notified of a retry: it is found by polling, no faster than this.
  flaky: [
    { ...BATCH, perJobResults: true, includeMetadata: true, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 },
    flaky,
  ],
});

async function open(url, options) {
  const boss = new PgBoss({ connectionString: url, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function prepare(url) {
  const boss = await open(url, { supervise: false });
  for (const task of Object.keys(tasks(1))) await boss.createQueue(task, { notify: true, retryDelay: 0 });
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

async function work(url, concurrency) {
  const boss = await open(url, { migrate: false, max: concurrency + 5, useListenNotify: true });
  process.once("SIGTERM", () => boss.stop());
  for (const [task, [options, handler]] of Object.entries(tasks(concurrency))) {
    await boss.work(task, options, handler);
  }
}

await main({ prepare, enqueue, work });
