import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { systemClock } from "#base/clock";
import { integerFlag } from "#base/config";
import {
  DISARM,
  HEARTBEAT,
  removeTransparent,
  runTransparentWatchdog,
  type TransparentMarks,
  type Watchdog,
} from "#features/uplink-routing";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { logFlags, loggerOf } from "../daemon-flags.ts";
import { defineProgram, EXIT } from "../run-program.ts";

/** What it says once the proxy's end is noticed. */
const READY = "ready\n";
const whole = { min: 0, max: 0xffff_ffff };

const flags = {
  mark: integerFlag("mark", 0, "packet mark of the redirection", whole),
  table: integerFlag("table", 0, "its routing table", whole),
  rulePriority: integerFlag("rule-priority", 0, "priority of its rules", whole),
  routeProtocol: integerFlag("route-protocol", 0, "what marks its routes as ours", whole),
  ...logFlags,
};

/** Outlives `uplink-proxy`, and takes its redirection away when it ends or hangs (docs/spec/uplink-proxy.md#14). */
export const uplinkWatchdog = defineProgram({
  name: "uplink-watchdog",
  summary: "Takes the transparent mode's redirection away when uplink-proxy ends or hangs; uplink-proxy starts it.",
  flags,
  run: async ({ values }) => {
    const log = loggerOf("uplink-watchdog", values);
    const kernel = openKernel();
    using own = kernel.openNetNs("own");
    using stack = kernel.openStack(own);
    using nft = openNft(own);
    const remove = (): void => void removeTransparent(stack, nft, values);
    // Signals go to the whole group; the proxy is asked to end, and tells us when it has.
    for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, () => undefined);
    const watched = runTransparentWatchdog({ input: process.stdin, remove, clock: systemClock, log });
    // Whoever has gone already need not hear it; that it has gone is what standard input tells.
    process.stdout.on("error", () => undefined);
    process.stdout.write(READY);
    await watched;
    return EXIT.ok;
  },
});

/** Starts the watchdog as a process of its own; `command` is how this executable is called. */
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
    // Under whatever name we were called: the first word says what is meant.
    env: { ...process.env, ISTHMUS_CALLED_AS: "isthmus" },
  });
  let [isAlive, isReady] = [true, false];
  for (const event of ["exit", "error"]) {
    child.once(event, () => {
      isAlive = false;
    });
  }
  // Without descriptors to spare there are no pipes either: the error follows.
  const { stdin, stdout }: { readonly stdin: Writable | null; readonly stdout: Readable | null } = child;
  stdout?.once("data", () => {
    isReady = true;
  });
  // A watchdog that has gone cannot read; its end is noticed.
  stdin?.on("error", () => undefined);
  child.unref();
  return {
    get isAlive() {
      return isAlive;
    },
    get isReady() {
      return isReady;
    },
    // A watchdog that hangs need not receive old heartbeats later.
    heartbeat: () => void (stdin?.writableNeedDrain === false && stdin.write(HEARTBEAT)),
    disarm: () => void stdin?.end(DISARM),
  };
}
