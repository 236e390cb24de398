import { existsSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename } from "node:path";
import { CAP } from "#kernel/capabilities";
import { tryFileLock } from "#kernel/lock";
import { inRoot, type NodePlaces } from "./places.ts";

/** Programs that another process namespace may hide hold their locks. */
export function lockHolders(
  at: Pick<NodePlaces, "root">,
  locks: readonly (readonly [program: string, path: string])[],
): readonly string[] {
  const isHeld = (path: string): boolean => {
    if (!existsSync(path)) return false;
    const lock = tryFileLock(path);
    lock?.[Symbol.dispose]();
    return lock === undefined;
  };
  return locks.flatMap(([name, path]) => (isHeld(inRoot(at, path)) ? [`${name} (it holds ${path})`] : []));
}

/**
 * Programs of the suite for nodes that run in this network namespace and may change it, as `coild (process 12)`. Of others' processes the command line and the
 * environment say what their users like.
 */
export function runningPrograms({ nodePrograms }: Pick<NodePlaces, "nodePrograms">): readonly string[] {
  const own = readlinkSync("/proc/self/ns/net");
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      try {
        const name = programOf(
          readFileSync(`/proc/${pid}/cmdline`, "utf8"),
          readFileSync(`/proc/${pid}/environ`, "utf8"),
          nodePrograms,
        );
        const isOurs =
          name !== undefined && readlinkSync(`/proc/${pid}/ns/net`) === own && canChangeNode(processOwner(pid));
        return isOurs ? [`${name} (process ${pid})`] : [];
      } catch (error) {
        // It has ended meanwhile, or is not ours to look at.
        if (error instanceof Error && "syscall" in error) return [];
        throw error;
      }
    });
}

/** The identity of a process, as the kernel says it. */
export interface ProcessOwner {
  /** /proc/PID/status. */
  readonly status: string;
  /** The target of /proc/PID/exe. */
  readonly executable: string;
  /** It is in the user namespace of this process: in one of its own it has every capability, and none here. */
  readonly isHere: boolean;
}

function processOwner(pid: string): ProcessOwner {
  return {
    status: readFileSync(`/proc/${pid}/status`, "utf8"),
    executable: readlinkSync(`/proc/${pid}/exe`),
    isHere: readlinkSync(`/proc/${pid}/ns/user`) === readlinkSync("/proc/self/ns/user"),
  };
}

/** Pure: whether a process is Node, and root's or of a user to whom root has given CAP_NET_ADMIN. */
export function canChangeNode({ status, executable, isHere }: ProcessOwner): boolean {
  if (!isHere || !/^node/.test(basename(executable))) return false;
  const uid = /^Uid:\s+\d+\s+(\d+)/m.exec(status)?.[1];
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? "0"}`);
  return uid === "0" || ((effective >> BigInt(CAP.NET_ADMIN)) & 1n) === 1n;
}

/** Pure: the program for nodes that a process runs; `undefined` for any other process. */
export function programOf(
  commandLine: string,
  environment: string,
  nodePrograms: ReadonlySet<string>,
): string | undefined {
  const words = commandLine.split("\0");
  const at = words.findIndex((word) => /\/(isthmus\.mjs|programs\/start\/start\.ts)$/.test(word));
  if (at < 0) return undefined;
  const calledAs = /(?:^|\0)ISTHMUS_CALLED_AS=([^\0]*)/.exec(environment)?.[1] ?? "";
  return [calledAs, words[at + 1] ?? ""].find((name) => nodePrograms.has(name));
}
