/** The parts that use Kubernetes: tokens, Leases and Nodes. */
export { TokenReviewAuthenticator } from "./auth/token-review.ts";
export { NodeBook } from "./identity/node-book.ts";
export { LeaseCollector } from "./lease/lease-collector.ts";
export { LeaseCounter } from "./lease/lease-counter.ts";
export { ServerLease } from "./lease/server-lease.ts";
