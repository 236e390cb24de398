/**
 * Network namespaces: opened by name, path or process, made and pinned exactly as `ip netns` does, and entered for the
 * length of one synchronous function.
 *
 * Owns: setns and /run/netns. Does not know: the work inside.
 *
 * ```ts
 * using ns = createNetNs("pod-1");
 * const fd = inNetNs(ns, () => socket(C.AF_INET, C.SOCK_DGRAM, 0)); // stays in pod-1 afterwards
 * deleteNetNs("pod-1");
 * ```
 */
export { inNetNs } from "./enter.ts";
export { createAnonymousNetNs, createNetNs, deleteNetNs, listNetNs } from "./named.ts";
export { NETNS_DIR, type NetNs, type NetNsRef, sameNetNs } from "./netns.ts";
export { openNetNs } from "./open.ts";
