/**
 * Kernel settings of one namespace.
 *
 * Owns: {@link SysctlPort}, the mapping of keys to files, the settings by which a link takes no routes. Does not know: which settings a feature wants.
 *
 * ```ts
 * stack.sysctl.set("net.ipv4.ip_forward", 1);
 * ```
 */
export { ignoreRouters, routerSettings } from "./ignore-routers.ts";
export { HOST_PROC_SYS, openSysctlPort, sysctlPath } from "./port.ts";
export type { SysctlPort } from "./types.ts";
