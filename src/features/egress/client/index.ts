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
export { isMarkedBy } from "./origin.ts";
export {
  type ClientOptions,
  clientScope,
  type Gateway,
  PRIVATE_RANGES,
  planClient,
  skipText,
} from "./plan.ts";
export { type ClientSync, lackOfClient, syncClient } from "./sync.ts";
