/**
 * The comparison of `isthmus audit` and of the lab's report: pods, blocks, links and routes, and Egress NAT.
 *
 * Owns: which sockets are asked what, and the result as one. Does not know: what is compared, output.
 */
export { auditWhole, type WholeAudit } from "./whole-audit.ts";
