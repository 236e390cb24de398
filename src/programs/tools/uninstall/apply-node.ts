import { existsSync, lstatSync, readdirSync, renameSync, rmdirSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { createLogger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import { DataPlane, GenerationTracker } from "#features/service-proxy";
import { removeGuard } from "#features/source-guard";
import type { NodeRemoval } from "#features/uninstall";
import { flushKernel } from "#features/uplink-routing";
import { isKernelError } from "#kernel/errors";
import type { Client } from "./clients.ts";
import type { NodeKernel } from "./read-node.ts";

/** The target of removals. */
export interface NodeTarget {
  readonly kernel: NodeKernel;
  /** Removes the NICs of a container as its DEL would. */
  readonly unplug: (containerId: string) => Promise<void>;
  /** Removes the NAT client of a pod. */
  readonly removeClient: (client: Client) => Promise<void>;
  /** Removes the rules by which packets of pods pass iptables. */
  readonly removeForward: () => Promise<unknown>;
  /** The settings of uplinks whose kernel objects are removed. */
  readonly uplinkSettings: () => readonly Settings[];
  /** Programs of the suite that run. */
  readonly running: () => readonly string[];
}

/**
 * Makes the removals in their order; one that fails does not keep the others from being made, but for NICs, whose records would go. What is gone by now
 * is no failure. `onDone` is called after each. `running` names programs of the suite that run, and is asked before each removal: one that has started since the plan would make
 * again what is removed, and lose what it has made, so nothing more is removed. Returns the failures, one line each.
 */
export async function applyNode(
  target: NodeTarget,
  removals: readonly NodeRemoval[],
  onDone: (removal: NodeRemoval) => void,
): Promise<readonly string[]> {
  const failures: string[] = [];
  for (const removal of removals) {
    if (removal.op === "remove-file" && removal.isLast === true && failures.length > 0) {
      failures.push(`${removal.what}: it stays, as it says what is left`);
      continue;
    }
    const started = target.running();
    if (started.length > 0)
      return [...failures, `${started.join(", ")} has started meanwhile: end it; nothing more was removed`];
    try {
      await apply(target, removal);
      onDone(removal);
    } catch (error) {
      if (!isExpected(error)) throw error;
      failures.push(`${removal.what}: ${describeError(error)}`);
      if (removal.op === "unplug") return [...failures, "nothing more was removed"];
    }
  }
  return failures;
}

/** Not a bug: what the kernel, a file system or Open vSwitch refuses. */
function isExpected(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.every(isExpected);
  return error instanceof ExpectedError || (error instanceof Error && "syscall" in error);
}

async function apply(
  { kernel, unplug, removeClient, removeForward, uplinkSettings }: NodeTarget,
  removal: NodeRemoval,
): Promise<void> {
  const { stack } = kernel;
  switch (removal.op) {
    case "unplug":
      return unplug(removal.containerId);
    case "remove-client":
      return removeClient(removal.client);
    case "remove-file":
      return removeTree(removal.path);
    case "restore-file":
      if (!existsSync(removal.to)) renameSync(removal.path, removal.to);
      return;
    case "delete-link":
      return ifThere(() => stack.links.delete(removal.index));
    case "clear-alias":
      return ifThere(() => stack.links.set(removal.index, { alias: "" }));
    case "delete-address":
      return ifThere(() => stack.addresses.delete(removal.address));
    case "delete-rule":
      return ifThere(() => stack.rules.delete(removal.rule));
    case "delete-route": {
      const { dst, table, protocol, type, linkIndex, gateway, metric } = removal.route;
      return ifThere(() => stack.routes.delete({ dst, table, protocol, type, linkIndex, gateway, metric }));
    }
    case "delete-guard":
      removeGuard(kernel);
      return;
    case "delete-forward":
      await removeForward();
      return;
    case "delete-services":
      return deleteServices(kernel, removal);
    case "flush-uplinks":
      return flushAll(kernel, uplinkSettings());
    case "set":
      return stack.sysctl.set(removal.key, removal.value);
  }
}

/**
 * Removes a file, or a folder with its content; links are not followed. What is gone already is no failure. Throws the system's error with the path that it is about:
 * `rmSync` says "Unknown error" for some, such as a file system that is mounted in the folder.
 */
export function removeTree(path: string): void {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (stat.isDirectory()) {
    for (const name of readdirSync(path)) removeTree(join(path, name));
    rmdirSync(path);
  } else unlinkSync(path);
}

/** Tries all, and throws the first refusal. */
function flushAll(kernel: NodeKernel, settings: readonly Settings[]): void {
  const errors = settings.flatMap((one) => {
    try {
      flushKernel(kernel, one);
      return [];
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      return [error];
    }
  });
  if (errors[0] !== undefined) throw errors[0];
}

/** As `service-proxy --cleanup` does for one family. */
async function deleteServices(
  { nft, elements }: NodeKernel,
  { family, table }: Extract<NodeRemoval, { readonly op: "delete-services" }>,
): Promise<void> {
  const generations = new GenerationTracker(elements);
  const log = createLogger({ name: "uninstall" });
  const rules = { mark: 0x4000, masqueradeAll: false, detector: undefined, nodePortAddresses: "set" } as const;
  const plane = new DataPlane(
    { nft, elements, generations, clock: systemClock, log },
    { ...rules, family, tableName: table },
  );
  await plane.remove();
}

/** Routes of a link end with it, and other programs remove objects too. */
function ifThere(remove: () => void): void {
  try {
    remove();
  } catch (error) {
    if (!isKernelError(error, "not-found", "no-device")) throw error;
  }
}
