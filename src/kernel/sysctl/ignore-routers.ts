import { isKernelError } from "#kernel/errors";
import type { SysctlPort } from "./types.ts";

/** A setting and its value. */
export type Setting = readonly [key: string, value: string];

/**
 * Pure: the settings by which the host takes no route from what is at the other end of a link: no router advertisement and no redirect,
 * whatever `conf/default` says. They do not affect packets that the host forwards. With `ipv6` false the link has no IPv6 at all.
 */
export function routerSettings(link: string, { ipv6 }: { readonly ipv6: boolean }): Setting[] {
  return [
    [`net/ipv4/conf/${link}/accept_redirects`, "0"],
    [`net/ipv6/conf/${link}/accept_ra`, "0"],
    [`net/ipv6/conf/${link}/accept_redirects`, "0"],
    ...(ipv6 ? [] : [[`net/ipv6/conf/${link}/disable_ipv6`, "1"] as const]),
  ];
}

/**
 * Writes {@link routerSettings}. Call it before the link is up. A kernel without IPv6 needs no setting of IPv6. Throws `KernelError`,
 * `not-found` if there is no such link.
 */
export function ignoreRouters(sysctl: SysctlPort, link: string, options: { readonly ipv6: boolean }): void {
  for (const [key, value] of routerSettings(link, options)) {
    try {
      sysctl.set(key, value);
    } catch (error) {
      if (!isKernelError(error, "not-found") || !key.startsWith("net/ipv6/")) throw error;
    }
  }
}
