import { readdirSync, readlinkSync } from "node:fs";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { isKernelError } from "#kernel/errors";
import type { Kernel } from "#kernel/net";
import { NETNS_DIR } from "#kernel/netns";
import { isNetnsOf } from "./names.ts";

/** The number of removed things. */
export interface Removed {
  readonly processes: number;
  readonly namespaces: number;
}

/** Time from SIGTERM to SIGKILL, in milliseconds. */
const GRACE_MS = 2000;

/**
 * Ends every process in the lab's namespaces and deletes the namespaces. The names alone tell which these are ({@link isNetnsOf}), so it works after
 * any crash and never changes other objects. No effect if nothing exists.
 */
export async function removeTopology(kernel: Kernel, lab: string): Promise<Removed> {
  // Also names without a mounted namespace: a process that was killed while it made a namespace leaves such a name.
  const names = namesOf(lab);
  const inodes = new Set<string>();
  for (const name of names) {
    try {
      using netns = kernel.openNetNs({ name });
      inodes.add(`net:[${netns.inode}]`);
    } catch (error) {
      if (!isKernelError(error, "invalid", "not-found")) throw error;
    }
  }
  const processes = inodes.size === 0 ? 0 : await endProcesses(inodes);
  for (const name of names) kernel.deleteNetNs(name);
  return { processes, namespaces: names.length };
}

function namesOf(lab: string): string[] {
  try {
    return readdirSync(NETNS_DIR).filter((name) => isNetnsOf(lab, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

async function endProcesses(inodes: ReadonlySet<string>): Promise<number> {
  const first = processesIn(inodes);
  for (const pid of first) signalProcess(pid, "SIGTERM");
  const none = (left: readonly number[]): boolean => left.length === 0;
  await poll(() => processesIn(inodes), { until: none, everyMs: 20, deadlineMs: GRACE_MS, clock: systemClock });
  const kill = (): readonly number[] => {
    const left = processesIn(inodes);
    for (const pid of left) signalProcess(pid, "SIGKILL");
    return left;
  };
  await poll(kill, { until: none, everyMs: 20, clock: systemClock });
  return first.length;
}

/** Processes in one of these network namespaces, given as `net:[INODE]`, without this process. */
export function processesIn(inodes: ReadonlySet<string>): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((name) => {
      try {
        return inodes.has(readlinkSync(`/proc/${name}/ns/net`));
      } catch {
        return false; // it has ended, or is a zombie
      }
    })
    .map(Number);
}

function signalProcess(pid: number, signal: "SIGTERM" | "SIGKILL"): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
