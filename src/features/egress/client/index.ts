export {
  type ClientEgress,
  type ClientService,
  clientEgress,
  clientService,
  EGRESS_SERVICES,
  type EgressSource,
  faultText,
  gatewaysOf,
  isBeingRepaired,
  isMissing,
  isObjectRef,
  namedEgresses,
} from "./gateways.ts";
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
  clientScope,
  type Gateway,
  PRIVATE_RANGES,
  planClient,
  skipText,
} from "./plan.ts";
export { type ClientSync, lackOfClient, syncClient } from "./sync.ts";
