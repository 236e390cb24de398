/** A worker for tests: `node worker.ts MODE`. It writes a line to standard output for each order. */
import { readlinkSync } from "node:fs";
import { thisWorker } from "../this-worker.ts";

const worker = thisWorker();
const mode = process.argv[2] ?? "";
if (worker === undefined) {
  process.stdout.write("no worker\n");
} else {
  const { index, count, signal, hurry } = worker;
  const alive = setInterval(() => undefined, 1000);
  const say = (line: string): void => void process.stdout.write(`${index}/${count} ${line}\n`);
  worker.answer("who", () => {
    if (mode === "dies" && index === 2) setTimeout(() => process.kill(process.pid, "SIGKILL"), 50);
    return { index, pid: process.pid };
  });
  worker.answer("stuck", () => (index === 2 ? new Promise(() => undefined) : "well"));
  worker.answer("again", () => process.env["ISTHMUS_WORKER"] ?? "not passed on");
  let others = false;
  let told = 0;
  const learnOthers = (): void =>
    worker.onOthers((canServe) => {
      others = canServe;
      told += 1;
    });
  if (mode === "learns-late") setTimeout(learnOthers, 200);
  else learnOthers();
  worker.answer("others", () => others);
  worker.answer("told", () => told);
  // One does nothing for two seconds while another one says 20,001 times that it can serve, or no longer can.
  worker.answer("2 sleeps while 1 changes", () => {
    if (index === 2) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);
    for (let at = 0; index === 1 && at <= 20_000; at += 1) worker.reportServing(at % 2 === 0);
  });
  worker.answer("1 serves", () => worker.reportServing(index === 1));
  worker.answer("2 and 3 serve", () => worker.reportServing(index !== 1));
  worker.answer("none serves", () => worker.reportServing(false));
  let received = "";
  worker.onListener((fd) => {
    received = readlinkSync(`/proc/self/fd/${fd}`);
  });
  worker.answer("received", () => received);
  worker.onReload(() => say("reload"));
  hurry.addEventListener("abort", () => say("hurry"));
  signal.addEventListener("abort", () => {
    say("end");
    if (mode === "stubborn") return;
    process.exitCode = index === 2 ? 3 : 0;
    clearInterval(alive);
  });
  if (mode === "fails" && index === 1) process.exit(7);
  if (mode === "second-fails" && index === 2) process.exit(8);
  if (mode === "learns-late" && index === 1) worker.reportServing(true);
  if (mode !== "slow") worker.started();
}
