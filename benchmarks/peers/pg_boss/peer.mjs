// pg-boss: PostgreSQL, Node. Jobs are fetched and completed in batches; NOTIFY wakes an idle worker.

import { isFlaky, library, main, noteStart, send } from "../roles.mjs";

const { PgBoss } = library("pg-boss", import.meta.filename);
const E = process.env;

async function open(url, options) {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function prepare(url) {
  const boss = await open(url);
  for (const task of Object.keys(tasks)) await boss.createQueue(task, { notify: true, retryDelay: 0 });
  await boss.stop();
}

async function enqueue(url, asked) {
  const boss = await open(url, { migrate: false });
  await boss.getQueue(asked.task);
  await send(
    asked,
    (payload) => boss.send(asked.task, payload),
    (payloads) => boss.insert(asked.task, payloads.map((data) => ({ data }))),
  );
  await boss.stop();
}

async function begin(jobs) {
  for (const job of jobs) noteStart(job.data);
}

async function write(jobs, transaction) {
  for (const { data } of jobs) {
    noteStart(data);
    await transaction.executeSql("INSERT INTO bench_effects (n) VALUES ($1)", [data.n]);
  }
}

async function fail(jobs) {
  return jobs.map(({ id, data, retryCount }) => {
    noteStart(data);
    return { id, status: isFlaky(data) && retryCount === 0 ? "failed" : "completed" };
  });
}

const B = Number(E.B ?? 1000), W = Number(E.W ?? 2), WB = Number(E.WB ?? 100), WW = Number(E.WW ?? 20);
const batch = { batchSize: B, localConcurrency: W, burstWhenBatchFull: true };
const tasks = {
  noop: [batch, begin],
  stamp: [batch, begin],
  write: [{ batchSize: WB, localConcurrency: WW, burstWhenBatchFull: true, transactional: true }, write],
  flaky: [{ ...batch, perJobResults: true, includeMetadata: true, pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 }, fail],
};

async function work(url, concurrency) {
  const boss = await open(url, { migrate: false, max: concurrency + 2, useListenNotify: true, supervise: true });
  for (const [task, [options, handler]] of Object.entries(tasks)) await boss.work(task, options, handler);
  process.once("SIGTERM", () => boss.stop());
}

await main({ prepare, enqueue, work });
