// The command line that every Node peer answers to: its roles, its payloads and the lines it prints. The twin of roles.py.

import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { setTimeout as pause } from "node:timers/promises";

// What the harness is measuring; a worker whose settings depend on it looks here.
export const WORKLOAD = process.env.BENCH_WORKLOAD ?? "";
const HOLD_MS = 3_600_000;

// A peer's packages are not beside its program: they are in the environment that its `node` belongs to, like those of a
// Python virtual environment. NODE_PATH, the current folder and the peer's own folder are looked at too.
export function library(name, peer) {
  const require = createRequire(peer);
  return require(require.resolve(name, { paths: [dirname(process.execPath), process.cwd(), dirname(peer)] }));
}

// Run the role named on the command line.
export async function main({ prepare, enqueue, work }) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      task: { type: "string" },
      jobs: { type: "string" },
      batch: { type: "string", default: "1" },
      payload: { type: "string", default: "0" },
      every: { type: "string", default: "0" },
      seconds: { type: "string", default: "Infinity" },
      concurrency: { type: "string" },
    },
  });
  const url = process.env.BENCH_URL;
  const roles = {
    prepare: () => prepare(url),
    work: () => work(url, Number(values.concurrency)),
    enqueue: () =>
      enqueue(url, {
        task: values.task,
        jobs: Number(values.jobs),
        batch: Number(values.batch),
        payloadBytes: Number(values.payload),
        every: Number(values.every),
        seconds: Number(values.seconds),
      }),
  };
  const role = roles[positionals[0]];
  if (!role) throw new Error(`roles: ${Object.keys(roles).join(", ")}`);
  await role();
}

// Enqueue what was asked for, by `one` or by `many`, until `seconds` have passed; report the jobs and the time spent inside
// these calls.
export async function send(asked, one, many) {
  let spent = 0n;
  let jobs = 0;
  const stopAt = Number(process.hrtime.bigint()) / 1e9 + asked.seconds;
  const timed = async (call, argument) => {
    const started = process.hrtime.bigint();
    await call(argument);
    spent += process.hrtime.bigint() - started;
  };
  while (jobs < asked.jobs && (jobs === 0 || Number(process.hrtime.bigint()) / 1e9 < stopAt)) {
    const size = Math.min(asked.batch, asked.jobs - jobs);
    if (asked.batch > 1) {
      await timed(many, Array.from({ length: size }, (_, i) => payload(asked, jobs + i)));
    } else {
      await timed(one, payload(asked, jobs));
      if (asked.every) await pause(asked.every * 1000);
    }
    jobs += size;
  }
  printLine({ jobs, seconds: Number(spent) / 1e9 });
}

// Print when this process's first handler started, and a stamp job's two times. Every handler's first call.
export function noteStart(payload) {
  if (started && payload.sent_ns === undefined) return;
  const seen_ns = Number(process.hrtime.bigint());
  if (!started) printLine({ first_ns: seen_ns });
  started = true;
  if (payload.sent_ns !== undefined) printLine({ sent_ns: payload.sent_ns, seen_ns });
}

// Print that this process holds the job, and keep it: the whole handler of a hold job.
export async function hold(payload) {
  printLine({ held_ns: Number(process.hrtime.bigint()), n: payload.n });
  await pause(HOLD_MS);
}

// Whether a flaky job with this payload fails at its first attempt.
export function isFlaky(payload) {
  return payload.n % 10 === 0;
}

let started = false;

// Nanoseconds since boot are exact in a double for the first 104 days, and off by one after.
function payload(asked, n) {
  const made = { n, filler: "x".repeat(asked.payloadBytes) };
  if (asked.task === "stamp") made.sent_ns = Number(process.hrtime.bigint());
  return made;
}

function printLine(fields) {
  writeSync(1, `${JSON.stringify(fields)}\n`);
}
