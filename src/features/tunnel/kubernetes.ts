/** The parts that use Kubernetes: tokens and Leases. */
export { TokenReviewAuthenticator } from "./auth/token-review.ts";
export { LeaseCollector } from "./lease/lease-collector.ts";
export { LeaseCounter } from "./lease/lease-counter.ts";
export { ServerLease } from "./lease/server-lease.ts";
