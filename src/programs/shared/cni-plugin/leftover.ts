import type { CniCall } from "#wire/cni";

/**
 * False only if the attachment certainly has no objects any more: the namespace's path does not exist and no link here has its alias
 * (docs/spec/pod-network.md#11). Aliases are read from /sys, which shows the namespace in which /sys was mounted. If that is not the
 * namespace of this process, the function returns true.
 */
export async function hasAttachment(call: CniCall): Promise<boolean> {
  const { existsSync, readdirSync, readFileSync } = await import("node:fs");
  if (call.netns !== "" && existsSync(call.netns)) return true;
  const shown = readdirSync("/sys/class/net").filter((name) => existsSync(`/sys/class/net/${name}/ifalias`));
  const own = readFileSync("/proc/self/net/dev", "utf8")
    .split("\n")
    .flatMap((line) => /^\s*([^\s:]+):/.exec(line)?.[1] ?? []);
  if (shown.sort().join() !== own.sort().join()) return true;
  const tail = `:${call.containerId}:${call.ifname}`;
  return own.some((name) => {
    const path = `/sys/class/net/${name}/ifalias`;
    return existsSync(path) && readFileSync(path, "utf8").trim().endsWith(tail);
  });
}
