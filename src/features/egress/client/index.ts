export {
  type ClientEgress,
  type ClientService,
  clientEgress,
  clientService,
  EGRESS_SERVICES,
  type EgressSource,
  faultText,
  gatewaysOf,
  isMissing,
  isObjectRef,
  namedEgresses,
} from "./gateways.ts";
export {
  type ClientOptions,
  type ClientSkip,
  clientScope,
  type Gateway,
  PRIVATE_RANGES,
  planClient,
  skipText,
} from "./plan.ts";
