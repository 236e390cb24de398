import { readdirSync, readlinkSync } from "node:fs";
import type { SandboxState } from "./judge.ts";

/** The machine's first PID namespace (PROC_PID_INIT_INO of linux/proc_ns.h): who is in it sees every process. */
const ALL_PROCESSES = "pid:[4026531836]";
/** The errors of a process that ends while it is read, or of a kernel thread. */
const ENDED = new Set(["ENOENT", "ESRCH"]);

/**
 * The inodes of the network namespaces that processes of this machine are in; `undefined` if this process does not see them all, because it has a PID namespace of its own
 * or may not look at some (CAP_SYS_PTRACE). Reads /proc.
 */
export function namespacesOfProcesses(): ReadonlySet<bigint> | undefined {
  if (readlinkSync("/proc/self/ns/pid") !== ALL_PROCESSES) return undefined;
  const found = new Set<bigint>();
  for (const pid of readdirSync("/proc")) {
    // The first process of the machine is in no pod, and may hide itself even from root.
    if (!/^[1-9]\d*$/.test(pid) || pid === "1") continue;
    try {
      const inode = /^net:\[(\d{1,20})\]$/.exec(readlinkSync(`/proc/${pid}/ns/net`))?.[1];
      if (inode === undefined) return undefined;
      found.add(BigInt(inode));
    } catch (error) {
      if (!ENDED.has((error as NodeJS.ErrnoException).code ?? "")) return undefined;
    }
  }
  return found;
}

/**
 * Pure: a sandbox is gone if its network namespace is there and no process is in it: runtimes keep one in it for as long as the sandbox exists, or its containers are
 * in it. A sandbox whose namespace was not found is `unknown`.
 */
export function sandboxesByProcesses(
  places: readonly { readonly containerId?: string | undefined; readonly inode: bigint }[],
  processes: ReadonlySet<bigint> | undefined,
): (containerId: string) => SandboxState {
  const inodes = new Map(places.map(({ containerId, inode }) => [containerId, inode] as const));
  return (containerId) => {
    const inode = inodes.get(containerId);
    if (inode === undefined || processes === undefined) return "unknown";
    return processes.has(inode) ? "alive" : "gone";
  };
}
