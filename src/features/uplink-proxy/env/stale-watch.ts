import { spawn } from "node:child_process";
import type { Clock } from "#base/clock";
import { callersEnvironment } from "#base/environment";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { isStale, readSentinel } from "./sentinel.ts";

export interface WatchDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** The node's address now. */
  readonly nodeIP: () => IpAddress | undefined;
  /** Tunnels that the proxy carries; 0 if it does not answer. */
  readonly activeTunnels: () => Promise<number>;
}

export interface WatchOptions {
  readonly sentinel: string;
  readonly intervalMs: number;
  /** Run through `sh -c` when a list has become stale. Set by the operator; no other data is inserted into it. */
  readonly command: string | undefined;
  /** NO_PROXY must be stale for this time before the command runs, in milliseconds. */
  readonly debounceMs: number;
  readonly signal: AbortSignal;
}

/**
 * Compares the list that the runtime was started with with the node's address, until the signal aborts. Logs once that it has become
 * stale, and runs the operator's command once for each start of the runtime (docs/spec/uplink-proxy.md#10.3).
 */
export async function watchStaleness(deps: WatchDeps, options: WatchOptions): Promise<void> {
  const { log, clock } = deps;
  const { signal } = options;
  let staleSince: number | undefined;
  let ranFor: number | undefined;
  const compare = async (): Promise<void> => {
    const [sentinel, nodeIP] = [await readSentinel(options.sentinel), deps.nodeIP()];
    const stale = sentinel !== undefined && nodeIP !== undefined && isStale(sentinel, nodeIP);
    if (stale && staleSince === undefined) {
      staleSince = clock.monotonic();
      log.warn("the runtime's NO_PROXY is stale: the runtime was started before the node had its address", {
        pid: sentinel.pid,
        nodeIP: String(nodeIP),
      });
    }
    if (!stale && staleSince !== undefined) {
      staleSince = undefined;
      log.info("the runtime's NO_PROXY covers the node's address again", { pid: sentinel?.pid ?? 0 });
    }
    const due = stale && clock.monotonic() - (staleSince ?? 0) >= options.debounceMs && ranFor !== sentinel.pid;
    if (due && options.command !== undefined && (await deps.activeTunnels()) === 0) {
      ranFor = sentinel.pid;
      await runHook(options.command, log, signal);
    }
  };
  await repeat(compare, { signal, clock, everyMs: options.intervalMs });
}

async function runHook(command: string, log: Logger, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const child = spawn("sh", ["-c", command], { env: callersEnvironment(process.env), stdio: "inherit", signal });
  child.once("error", (error) => resolve(error.message));
  child.once("exit", (code, name) => resolve(code === 0 ? "" : `the command ended with ${name ?? `code ${code}`}`));
  const failure = await promise;
  if (failure === "") log.info("ran the command for a stale NO_PROXY", { command });
  else log.warn("the command for a stale NO_PROXY failed", { command, failure });
}
