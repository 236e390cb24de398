/**
 * Allowed destinations (docs/spec/uplink-proxy.md#9, #10.3), and the secrets of the listener for pods.
 *
 * Owns: one spelling of destinations, judging addresses, tokens, limits of clients, token and certificate on disk. Does not know: sockets
 * and uplinks.
 *
 * ```ts
 * const destination = destinationOf(target);
 * const verdict = judge(listener, destination.port, addresses, { settings, snapshot }); // all addresses of a name
 * ```
 */
export { ClientLimits } from "./client-limits.ts";
export { addressDestination, type Destination, destinationOf } from "./destination.ts";
export { deriveIdentity, freshIdentity } from "./identity.ts";
export { isAllowedPort, type Judgement, judge } from "./judge.ts";
export { type ClusterSecret, Secrets, type SecretsDeps } from "./secrets.ts";
export { checkToken } from "./token.ts";
