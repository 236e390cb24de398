/** The parts that use Kubernetes: tokens and Leases. */
export { TokenReviewAuthenticator } from "./auth/token-review.ts";
export { LeaseCounter } from "./lease/lease-counter.ts";
export { LeaseCollector } from "./lease/lease-gc.ts";
export { ServerLease } from "./lease/server-lease.ts";
