import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { describeError } from "#base/errors";
import { replaceFile } from "#base/file";
import { tryFileLock } from "#kernel/lock";
import type { LabIdentity } from "#lab/ownership";
import type { LabChained } from "./chained.ts";
import type { LabEgress } from "./egress.ts";
import { LabError } from "./errors.ts";
import { labPaths } from "./lab-paths.ts";
import type { LabServices } from "./services.ts";
import type { LabTunnel } from "./tunnel.ts";
import type { LabUpgrade } from "./upgrade.ts";
import type { LabUplinks } from "./uplinks.ts";
import type { LabVpc } from "./vpc.ts";

/** The state of a running lab that later commands need. */
export interface LabState {
  readonly lab: string;
  /** The number of the host process. */
  readonly pid: number;
  /** Field 22 of /proc/PID/stat, which distinguishes a process from a later one with the same number. */
  readonly startTime: string;
  readonly nodes: readonly { readonly name: string; readonly netns: string; readonly addresses: readonly string[] }[];
  /** Labels and names of the lab's objects. For a guest the kubeconfig beside the state file names the cluster with these objects. */
  readonly identity: LabIdentity;
  /** True if the cluster may have objects of the lab. */
  readonly isOnCluster: boolean;
  readonly families: readonly number[];
  readonly children: readonly { readonly name: string; readonly pid: number; readonly restarts: number }[];
  readonly ready: boolean;
  /** The tunnel; present if the control plane is separated from the nodes. */
  readonly tunnel?: LabTunnel | undefined;
  /** The uplinks; present if a node has uplinks. */
  readonly uplinks?: LabUplinks | undefined;
  /** The Services; present if every node has `service-proxy`. */
  readonly services?: LabServices | undefined;
  /** The Egresses; present if the lab has a network outside. */
  readonly egress?: LabEgress | undefined;
  /** The ranges of nodes; present if `coil` is behind another plugin. */
  readonly chained?: LabChained | undefined;
  /** The digest of the image from which the programs are; present with `--image`. */
  readonly image?: string | undefined;
  /** The builds; present with `--upgrade`. */
  readonly upgrade?: LabUpgrade | undefined;
  /** The VPC; present once Neutron runs in the lab. */
  readonly vpc?: LabVpc | undefined;
}

/**
 * Reads the state of a lab; `undefined` if there is no lab of that name, or its file is incomplete. Throws {@link LabError} if the file
 * cannot be read.
 */
export function readState(lab: string): LabState | undefined {
  const { state: path } = labPaths(lab);
  try {
    const state = JSON.parse(readFileSync(path, "utf8")) as LabState | null;
    return typeof state?.pid === "number" && Array.isArray(state.nodes) && typeof state.identity === "object"
      ? state
      : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw inaccessible(path, error);
  }
}

/**
 * Locks this lab, so that no other command starts or removes it. Throws {@link LabError} `already-up` if another command holds the lock,
 * and `start-failed` if the folder cannot be used.
 */
export function lockLab(lab: string): Disposable {
  const path = `${labPaths(lab).dir}.lock`;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  } catch (error) {
    throw inaccessible(dirname(path), error);
  }
  const lock = tryFileLock(path);
  if (lock !== undefined) return lock;
  throw new LabError(
    "already-up",
    `lab ${lab} is being started or removed by another command; wait for it, or choose another name with --name`,
  );
}

function inaccessible(path: string, error: unknown): LabError {
  return new LabError("start-failed", `cannot use ${path}: ${describeError(error)}; run as root`, { cause: error });
}

/** Replaces the file as a whole. */
export function writeState(state: LabState): void {
  const { state: path } = labPaths(state.lab);
  replaceFile(path, JSON.stringify(state, undefined, 2), { mode: 0o600, folderMode: 0o700 });
}

/** Removes the lab's files. No effect if there are none. */
export function removeState(lab: string): void {
  const { dir, disk } = labPaths(lab);
  for (const path of [disk, dir]) rmSync(path, { recursive: true, force: true });
}

/** The start time of a process in clock ticks since boot; `undefined` if there is no such process. */
export function startTimeOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name in parentheses may contain any character; the fields are after it.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] === "Z" ? undefined : fields[19];
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    throw error;
  }
}

/** Returns true if the process that wrote the state still runs. */
export function isRunning(state: Pick<LabState, "pid" | "startTime">): boolean {
  return startTimeOf(state.pid) === state.startTime;
}
