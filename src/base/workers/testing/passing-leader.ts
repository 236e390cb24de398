/**
 * A leader for tests: `node passing-leader.ts PATH` listens on a UNIX socket and runs itself with that socket as descriptor 3. The second process passes it to two
 * workers, and prints what it has and what each worker has received.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readlinkSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { WorkerGroup } from "../index.ts";

const PASSED = 3;
const [path] = process.argv.slice(2);
const sockets = (): string[] =>
  readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith("socket:");
    } catch {
      return false;
    }
  });

if (path === undefined) {
  const own = readlinkSync(`/proc/self/fd/${PASSED}`);
  const command = [process.execPath, join(import.meta.dirname, "worker.ts"), "usual"];
  await using group = await WorkerGroup.start({ command, count: 2 }, { signal: new AbortController().signal });
  await group.pass(PASSED);
  const received = await group.ask("received", { timeoutMs: 10_000 });
  process.stdout.write(JSON.stringify({ own, received }));
} else {
  const before = new Set(sockets());
  const server = createServer().listen(path);
  await once(server, "listening");
  const fd = Number(sockets().find((one) => !before.has(one)));
  const child = spawn(process.execPath, [import.meta.filename], { stdio: ["ignore", "inherit", "inherit", fd] });
  await once(child, "exit");
  server.close();
}
