import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { optional } from "./processes.ts";

/** The state of a socket that listens (include/net/tcp_states.h). */
const LISTEN = "0A";

/** The process that listens at a TCP port of this network namespace. */
export interface Listener {
  /** `undefined` for a process that cannot be seen from here. */
  readonly pid: number | undefined;
  /** The name of the program; empty without a pid. */
  readonly name: string;
}

/** Returns the process that listens at a TCP port of this network namespace; `undefined`: there is none. */
export function listenerOf(port: number): Listener | undefined {
  const inodes = new Set(["/proc/net/tcp", "/proc/net/tcp6"].flatMap((path) => inodesOf(optionalText(path), port)));
  if (inodes.size === 0) return undefined;
  for (const pid of readdirSync("/proc")) {
    if (!/^\d+$/.test(pid)) continue;
    const fds = optional(() => readdirSync(`/proc/${pid}/fd`)) ?? [];
    const isOwner = fds.some((fd) => {
      const [, inode] = /^socket:\[(\d+)\]$/.exec(optional(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? "") ?? [];
      return inode !== undefined && inodes.has(inode);
    });
    if (isOwner) return { pid: Number(pid), name: optionalText(`/proc/${pid}/comm`).trim() };
  }
  return { pid: undefined, name: "" };
}

/** The inodes of the sockets that listen at a port, by the table of /proc/net/tcp (Documentation/networking/proc_net_tcp.rst). Pure. */
export function inodesOf(table: string, port: number): readonly string[] {
  return table.split("\n").flatMap((line) => {
    const [, local = "", , state, , , , , , inode = ""] = line.trim().split(/\s+/);
    const isOwn = state === LISTEN && Number.parseInt(local.slice(local.lastIndexOf(":") + 1), 16) === port;
    return isOwn && /^\d+$/.test(inode) ? [inode] : [];
  });
}

function optionalText(path: string): string {
  return optional(() => readFileSync(path, "utf8")) ?? "";
}
