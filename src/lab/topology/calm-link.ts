import type { NetStack } from "#kernel/net";
import { ignoreRouters } from "#kernel/sysctl";

/**
 * Settings of a link of the lab, before it is up: no duplicate address detection, which takes two seconds and finds nothing here, and no routes
 * from router advertisements or redirects. Throws `KernelError`.
 */
export function calmLink({ sysctl }: Pick<NetStack, "sysctl">, name: string): void {
  const key = `net/ipv6/conf/${name}/accept_dad`;
  if (sysctl.get(key) !== undefined) sysctl.set(key, "0");
  ignoreRouters(sysctl, name, { ipv6: true });
}
