/** A program with a busy thread, and with busy connections of its own, that ends as its argument requests; prints how the thread ended. */
import { once } from "node:events";
import { readdirSync, readlinkSync } from "node:fs";
import { Worker } from "node:worker_threads";

const [, , how] = process.argv;
const worker = new Worker(new URL("./busy-worker.ts", import.meta.url), { workerData: how });
worker.on("error", (error) => process.stdout.write(`error: ${error.message}\n`));
worker.on("exit", (code) => process.stdout.write(`thread: ${code}, sockets: ${sockets()}\n`));
await once(worker, "message");
worker.postMessage("end");
if (how === "bug-of-main" || how === "exit-of-main") await import("./busy-worker.ts");
if (how === "terminate") await worker.terminate();
if (how === "leave") worker.unref();
if (how === "exit-of-main") process.exit(5);
if (how === "bug-of-main") throw new Error("a bug of the program");

/** The descriptors of this process, except standard input, output and error. */
function sockets(): number {
  const kinds = readdirSync("/proc/self/fd").map((fd) => (Number(fd) > 2 ? kindOf(fd) : ""));
  return kinds.filter((kind) => kind.startsWith("socket:")).length;
}

function kindOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    // The descriptor by which the folder was read.
    return "";
  }
}
