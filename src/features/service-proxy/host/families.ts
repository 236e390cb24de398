import { existsSync } from "node:fs";
import type { IpFamily } from "#base/ip";
import type { NetStack } from "#kernel/net";

/** The address families that this kernel supports. */
export function supportedFamilies(stack: Pick<NetStack, "sysctl">): readonly IpFamily[] {
  if (!existsSync("/proc/net/if_inet6")) return [4];
  return stack.sysctl.get("net.ipv6.conf.all.disable_ipv6") === "1" ? [4] : [4, 6];
}
