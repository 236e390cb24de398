export {
  type ClientOptions,
  clientScope,
  type Gateway,
  PRIVATE_RANGES,
  planClient,
} from "./plan.ts";
