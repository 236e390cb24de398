/**
 * Packets of pods pass the chain FORWARD of iptables, also where docker, ufw or an administrator drop what no rule accepts (docs/spec/pod-network.md#5.8).
 *
 * Owns: rules of that chain whose comments begin with `isthmus: pods`. Does not know: other chains, base chains of nftables, and when it is looked at.
 *
 * ```ts
 * const pass = new ForwardPass({ iptables: openIptables(netns), elements });
 * if (pass.mayDiffer(blocks)) await pass.sync(blocks);
 * ```
 */
export { FORWARD_ESTATE } from "./estate.ts";
export { ForwardPass } from "./forward-pass.ts";
export { type ForwardPlace, openIptables } from "./port.ts";
