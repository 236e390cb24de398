import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { errnoNumber, KernelError } from "#kernel/errors";
import { inNetNs } from "#kernel/netns";
import type { SysctlPort } from "./types.ts";

/** The path at which the manifests mount the node's /proc/sys: a container that is not privileged has its own read-only. */
export const HOST_PROC_SYS = "/host/proc/sys";

/** The settings of the namespace `ns`, which must stay open as long as the port is used. */
export function openSysctlPort(ns: { readonly fd: number }): SysctlPort {
  // /proc/sys/net shows the namespace of the thread that opens the file; synchronous calls run on this one.
  return {
    get: (key) => at(key, "read", (path) => inNetNs(ns, () => readFileSync(path, "utf8").trimEnd())),
    set: (key, value) => at(key, `write ${value} to`, (path) => inNetNs(ns, () => write(path, String(value)))),
  };
}

/** Writes a setting, through {@link HOST_PROC_SYS} where /proc/sys is mounted read-only. */
function write(path: string, value: string): void {
  try {
    writeFileSync(path, value);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EROFS" || !existsSync(`${HOST_PROC_SYS}/net`)) throw error;
    writeFileSync(path.replace("/proc/sys", HOST_PROC_SYS), value);
  }
}

/** The path under /proc/sys. Throws {@link KernelError} `invalid` for a key that is not under `net`. */
export function sysctlPath(key: string): string {
  const parts = key.split(key.includes("/") ? "/" : ".");
  if (parts.length < 2 || parts[0] !== "net" || parts.some((part) => part === "" || part === "." || part === "..")) {
    throw new KernelError(
      "invalid",
      `"${key}" is not a sysctl of a network namespace; an example is net.ipv4.ip_forward`,
    );
  }
  return `/proc/sys/${parts.join("/")}`;
}

function at<T>(key: string, verb: string, work: (path: string) => T): T {
  const path = sysctlPath(key);
  try {
    return work(path);
  } catch (error) {
    const errno = errnoNumber((error as NodeJS.ErrnoException).code ?? "");
    if (error instanceof KernelError || errno === undefined) throw error;
    throw KernelError.fromErrno(errno, `${verb} sysctl ${key}`);
  }
}
