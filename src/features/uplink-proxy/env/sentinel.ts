import { readFile } from "node:fs/promises";
import { replaceFile } from "#base/file";
import { Cidr, IpAddress } from "#base/ip";
import type { ProxyEnvironment } from "./proxy-environment.ts";

/** The file that records the environment of the container runtime (docs/spec/uplink-proxy.md#10.5). */
export const SENTINEL_PATH = "/run/mgmtproxy-containerd-env";
/** Longest file that is read, in bytes: another program may have replaced it. */
const MAX_SENTINEL_BYTES = 64 << 10;

/** The variables of a runtime at its start. More reliable than `/proc/PID/environ`: a runtime may unset variables. */
export interface Sentinel {
  readonly pid: number;
  readonly started: Date;
  /** Absent if the runtime was started while the off-switch was on. */
  readonly env?: ProxyEnvironment | undefined;
}

/** The text of the file; `flag` is the path of the off-switch. */
export function formatSentinel({ pid, started, env }: Sentinel, flag: string): string {
  const seconds = started.toISOString().replace(/\.\d+Z$/, "+00:00");
  const proxy = env?.HTTPS_PROXY ?? `(disabled — flag ${flag} present)`;
  return `pid=${pid}\nstarted=${seconds}\nHTTPS_PROXY=${proxy}\nNO_PROXY=${env?.NO_PROXY ?? "(none)"}\n`;
}

/** Parses a text of {@link formatSentinel}; `undefined` for any other text. */
export function parseSentinel(text: string): Sentinel | undefined {
  const match = /^pid=(\d{1,10})\nstarted=(\S+)\nHTTPS_PROXY=(.*)\nNO_PROXY=(.*)\n?$/.exec(text);
  const [, pid, startedText = "", proxy = "", list = ""] = match ?? [];
  const started = new Date(startedText);
  if (pid === undefined || Number.isNaN(started.getTime())) return undefined;
  const env = proxy.startsWith("(disabled") ? undefined : { HTTPS_PROXY: proxy, NO_PROXY: list };
  return { pid: Number(pid), started, env };
}

/** Replaces the file in one step, mode 0644. Throws `FileError`. */
export function writeSentinel(path: string, sentinel: Sentinel, flag: string): void {
  replaceFile(path, formatSentinel(sentinel, flag), { mode: 0o644 });
}

/** The record; `undefined` if the file is missing or is not a record. */
export async function readSentinel(path: string): Promise<Sentinel | undefined> {
  try {
    const bytes = await readFile(path);
    return bytes.length > MAX_SENTINEL_BYTES ? undefined : parseSentinel(bytes.toString("utf8"));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR" || code === "EISDIR") return undefined;
    throw error;
  }
}

/**
 * Returns true if the runtime would connect to the node's address through the proxy, because its NO_PROXY was made before the node got
 * that address (docs/spec/uplink-proxy.md#10.3). A runtime without the proxy is never stale.
 */
export function isStale({ env }: Pick<Sentinel, "env">, nodeIP: IpAddress): boolean {
  if (env === undefined) return false;
  return !env.NO_PROXY.split(",").some((entry) => {
    // The reference writes the host's address before the prefix, which Cidr.parse refuses.
    const [text = "", length] = entry.split("/");
    const address = IpAddress.tryParse(text);
    if (address?.family !== nodeIP.family) return false;
    if (length === undefined) return address.equals(nodeIP);
    return /^\d{1,3}$/.test(length) && Number(length) <= address.bits
      ? Cidr.of(address, Number(length)).contains(nodeIP)
      : false;
  });
}
