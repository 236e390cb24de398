/**
 * UDP ports on which the kernel unwraps ipip and ip6tnl packets (foo over UDP, generic UDP encapsulation).
 *
 * Owns: {@link FouPort} and its generic-netlink encoding. Does not know: the tunnel devices, which `#kernel/link` makes.
 *
 * ```ts
 * if (stack.fou.available()) stack.fou.add({ family: 4, port: 5555, ipProtocol: 4 });
 * ```
 */
export { decodeFou, openFouPort } from "./port.ts";
export type { FouPort, FouPortEntry } from "./types.ts";
