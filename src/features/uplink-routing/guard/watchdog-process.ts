import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { Watchdog } from "./keeper.ts";
import type { TransparentMarks } from "./transparent-plan.ts";
import { DISARM, HEARTBEAT } from "./watchdog.ts";

/** The text that the watchdog process writes once it watches. */
export const WATCHDOG_READY = "ready\n";

/** Starts the watchdog as a separate process; `command` is the command line of this executable. */
export function startWatchdog(marks: TransparentMarks, command: readonly string[]): Watchdog {
  const [file = "", ...args] = command;
  const words = [
    `--mark=${marks.mark}`,
    `--table=${marks.table}`,
    `--rule-priority=${marks.rulePriority}`,
    `--route-protocol=${marks.routeProtocol}`,
  ];
  const child = spawn(file, [...args, "uplink-watchdog", ...words], {
    stdio: ["pipe", "pipe", "inherit"],
    detached: true,
    // The executable may have been started under another name; the first word names the program.
    env: { ...process.env, ISTHMUS_CALLED_AS: "isthmus" },
  });
  let [isAlive, isReady] = [true, false];
  for (const event of ["exit", "error"]) {
    child.once(event, () => {
      isAlive = false;
    });
  }
  // If no descriptors are free, there are no pipes, and an `error` event follows.
  const { stdin, stdout }: { readonly stdin: Writable | null; readonly stdout: Readable | null } = child;
  stdout?.once("data", () => {
    isReady = true;
  });
  // Writes to a watchdog that has ended fail; its `exit` event clears isAlive.
  stdin?.on("error", () => undefined);
  child.unref();
  return {
    get isAlive() {
      return isAlive;
    },
    get isReady() {
      return isReady;
    },
    // Heartbeats are not queued, so that a watchdog that hangs does not receive old heartbeats later.
    heartbeat: () => void (stdin?.writableNeedDrain === false && stdin.write(HEARTBEAT)),
    disarm: () => void stdin?.end(DISARM),
  };
}
