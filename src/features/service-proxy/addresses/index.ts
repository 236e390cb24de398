/**
 * Decides whether a Service gets an external address that it claims (docs/spec/service-proxy.md#2.1): what is whose, as data, and the decision.
 *
 * Owns: {@link judgeAddress}, {@link AddressGuard}, which asks the kernel for sockets and remembers what it has given. Does not know: tables, watches.
 */
export { AddressGuard, type LateListener } from "./address-guard.ts";
export {
  type AddressMode,
  HOST_PORTS,
  type HostFacts,
  judgeAddress,
  type PortRange,
  parsePortRanges,
} from "./judge.ts";
export { addressesOf, OtherNodesReader, podCIDRsOf } from "./other-nodes.ts";
