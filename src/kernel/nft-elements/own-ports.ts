import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { KernelError } from "#kernel/errors";
import { NETLINK } from "#kernel/netlink";
import { inNetNs } from "#kernel/netns";

const DESCRIPTORS = "/proc/self/fd";

/**
 * The port ids of this process's netfilter sockets in a namespace, also of those that libnftables has opened. By them this process knows its own
 * transactions: the kernel reports threads by their number in the initial PID namespace, which a container does not know. Throws {@link KernelError}.
 */
export function ownPorts(ns: { readonly fd: number }): ReadonlySet<number> {
  try {
    const own = new Set(readdirSync(DESCRIPTORS).map(socketOf));
    // Columns: address, protocol, port id, groups, memory (twice), dump, locks, drops, inode (af_netlink.c, netlink_native_seq_show).
    const rows = inNetNs(ns, () => readFileSync("/proc/thread-self/net/netlink", "utf8"))
      .trim()
      .split("\n")
      .slice(1);
    const sockets = rows.map((row) => row.trim().split(/\s+/));
    return new Set(
      sockets
        .filter(([, protocol, , , , , , , , inode]) => Number(protocol) === NETLINK.NETFILTER && own.has(inode))
        .map(([, , port]) => Number(port)),
    );
  } catch (cause) {
    throw new KernelError("failed", "Cannot list the netlink sockets of this process", { cause });
  }
}

/** The inode of a descriptor's socket; `undefined` if the descriptor is another file, or was closed meanwhile. */
function socketOf(fd: string): string | undefined {
  try {
    return /^socket:\[(\d+)\]$/.exec(readlinkSync(`${DESCRIPTORS}/${fd}`))?.[1];
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
