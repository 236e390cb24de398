/**
 * Leader election with a Lease, by client-go's algorithm.
 *
 * Owns: acquiring, renewing and releasing the lease; clocks of other machines are never trusted: the time without a change of
 * the record is measured by our own monotonic clock. Does not know: what a leader does.
 *
 * ```ts
 * const why = await runAsLeader(client, { namespace: "kube-system", name: "coil-ipam-leader", identity, clock }, {
 *   lead: (signal) => controllers.run({ signal }),
 *   signal,
 * });
 * if (why === "lost") process.exitCode = 1; // start again
 * ```
 */
export { type LeaderElectionOptions, LeaderElector, type LeadershipEnd } from "./elector.ts";
export { type HeldLease, runAsLeader } from "./run-as-leader.ts";
