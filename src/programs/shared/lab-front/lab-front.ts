import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { Deferred, poll, unlessAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { type HostEvent, isRunning, LabError, type LabState, labPaths, type SwitchRequest } from "#lab/host";
import { ownCommand } from "../program/index.ts";

/** A process that keeps a lab up, started by {@link startHost}. */
export interface LabHost {
  /** Resolves when the cluster is up; rejects with {@link LabError}. */
  readonly ready: Promise<void>;
  /** Lets the host process continue to run after this process has ended. */
  keep(): Promise<void>;
  /** Runs the programs of a place from another build, one request at a time. Rejects with {@link LabError} if the host process ends. */
  switchTo(request: SwitchRequest): Promise<void>;
  /** Ends the host process and waits until it has removed the whole lab. */
  stop(): Promise<void>;
}

/**
 * Maximum time in which a host process removes its lab, in milliseconds. The limit is longer for a guest, because its cluster must delete
 * objects too.
 */
const STOP_MS = 30_000;
const LEAVE_MS = 180_000;

/** The shortest time for nodes to become ready, in milliseconds. */
const MIN_START_MS = 60_000;

/**
 * Starts the process that keeps the lab up. That process removes the lab and ends when its standard input closes, so nothing of the lab
 * remains after a front end was killed.
 */
export async function startHost(
  values: {
    readonly name: string;
    readonly nodes: number;
    readonly families: string;
    readonly kubeconfig: string | undefined;
    readonly tunnel: boolean;
    readonly uplinks: boolean;
    readonly services: boolean;
    readonly egress: boolean;
    readonly chained: boolean;
    readonly image: string | undefined;
    readonly vpc: boolean;
    readonly vpcDriver: string;
    readonly upgrade: string | undefined;
    /** The time for pods to start, in milliseconds. Nodes have as much, and a minute at least. */
    readonly timeout: number;
  },
  { say, signal }: { readonly say: (text: string) => void; readonly signal: AbortSignal },
): Promise<LabHost> {
  const paths = labPaths(values.name);
  mkdirSync(paths.logs, { recursive: true, mode: 0o700 });
  const [file = "", ...args] = ownCommand();
  const log = openSync(paths.logOf("host"), "a", 0o600);
  // When the host process ends, it removes its folder and the log in it.
  const lastLine = (): string => readFileSync(`/proc/self/fd/${log}`, "utf8").trimEnd().split("\n").at(-1) ?? "";
  const child = spawn(
    file,
    [
      ...args,
      "lab-host",
      `--name=${values.name}`,
      `--nodes=${values.nodes}`,
      `--families=${values.families}`,
      `--tunnel=${values.tunnel}`,
      `--uplinks=${values.uplinks}`,
      `--services=${values.services}`,
      `--egress=${values.egress}`,
      `--chained=${values.chained}`,
      ...(values.image === undefined ? [] : [`--image=${resolve(values.image)}`]),
      `--vpc=${values.vpc}`,
      `--vpc-driver=${values.vpcDriver}`,
      `--start-timeout=${Math.max(values.timeout, MIN_START_MS)}ms`,
      ...(values.upgrade === undefined ? [] : [`--upgrade=${resolve(values.upgrade)}`]),
      ...(values.kubeconfig === undefined ? [] : [`--lab-kubeconfig=${values.kubeconfig}`]),
    ],
    // The host process has a session of its own: only the front end gets the signal of Ctrl-C, and then ends the lab in order.
    { stdio: ["pipe", "pipe", log], detached: true },
  );
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error("the lab's host process has no pipes");
  const ready = new Deferred();
  const kept = new Deferred();
  let switched = new Deferred();
  const over = new Deferred<never>();
  over.promise.catch(() => undefined);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  ready.promise.catch(() => undefined);
  kept.promise.catch(() => undefined);
  child.once("error", (error) =>
    ready.reject(new LabError("start-failed", `the lab cannot be started: ${error.message}`)),
  );
  stdin.on("error", () => undefined);
  const lines = createInterface({ input: stdout });
  lines.on("line", (line) => {
    const event = JSON.parse(line) as HostEvent | { readonly event: "kept" };
    if (event.event === "step") say(event.text);
    else if (event.event === "ready") ready.resolve();
    else if (event.event === "kept") kept.resolve();
    else if (event.event === "switched") switched.resolve();
    else {
      const error = new LabError("start-failed", event.message);
      ready.reject(error);
      over.reject(error);
    }
  });
  void ended.then(() => {
    const error = new LabError("start-failed", `the lab's host process has ended; its last log line: ${lastLine()}`);
    closeSync(log);
    ready.reject(error);
    kept.reject(error);
    over.reject(error);
  });
  const onAbort = (): void => ready.reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  return {
    ready: ready.promise,
    async keep() {
      stdin.write("keep\n");
      await kept.promise;
      lines.close();
      stdin.destroy();
      stdout.destroy();
      child.unref();
    },
    async switchTo(request) {
      switched = new Deferred();
      stdin.write(`${JSON.stringify(request)}\n`);
      await unlessAborted(Promise.race([switched.promise, over.promise]), { signal });
    },
    async stop() {
      stdin.end();
      const late = setTimeout(() => child.kill("SIGKILL"), values.kubeconfig === undefined ? STOP_MS : LEAVE_MS);
      await ended;
      clearTimeout(late);
    },
  };
}

/** Ends the host process of a lab that was kept, and waits until that process has ended. */
export async function stopHost(state: LabState): Promise<void> {
  const signalHost = (name: "SIGTERM" | "SIGKILL"): void => {
    if (isRunning(state)) process.kill(state.pid, name);
  };
  signalHost("SIGTERM");
  const deadlineMs = state.identity.isGuest ? LEAVE_MS : STOP_MS;
  await poll(() => isRunning(state), { until: (running) => !running, everyMs: 20, deadlineMs, clock: systemClock });
  signalHost("SIGKILL");
}

/** The path of the CNI executable. The build puts it beside the bundle. */
export function cniExecutable(): string {
  const own = process.argv[1] ?? "";
  const dist = own.endsWith(".ts") ? join(dirname(own), "../../../dist") : dirname(own);
  return join(dist, "cni", "coil");
}
