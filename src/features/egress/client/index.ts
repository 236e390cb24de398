export {
  accessPod,
  type ClientEgress,
  type ClientRouter,
  type ClientService,
  type ClientUse,
  clientEgress,
  clientRouter,
  clientService,
  EGRESS_SERVICES,
  type EgressSource,
  faultText,
  gatewaysOf,
  isBeingRepaired,
  isMissing,
  isObjectRef,
  namedEgresses,
  type UsingPod,
} from "./gateways.ts";
export { type ClientWish, type HeldEgresses, keepClosed, NOTHING_HELD, withLackingFamilies } from "./held.ts";
export { holderOf } from "./holder.ts";
export {
  diffMarks,
  isMarkedBy,
  isOriginRule,
  listMarks,
  type OriginMark,
  observeUplinks,
  originTable,
  planMarks,
  type Uplink,
} from "./origin.ts";
export {
  type ClientOptions,
  type ClosedDestinations,
  clientScope,
  type Gateway,
  guardedDestinations,
  guardOf,
  PRIVATE_RANGES,
  planClient,
  skipText,
} from "./plan.ts";
export { type ClientSync, lackOfClient, observeClosed, syncClient } from "./sync.ts";
export { tunnelSources } from "./translated.ts";
