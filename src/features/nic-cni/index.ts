/**
 * The NICs of sandboxes on a node: devices, addresses, routes and rules, ports of Open vSwitch (docs/spec/vpc-nics.md#8), and devices that Alcor's
 * agent makes (docs/spec/vpc-nics.md#9).
 *
 * Owns: the plan as data, the journal, making and removing NICs, their devices (alias `isthmus-nic:`), tables 101 and on and their rules in
 * sandboxes. Does not know: claims, Kubernetes, the calls of CNI.
 *
 * ```ts
 * const plan = await network.setUp(wanted, { signal }); // all NICs, or none
 * console.log(cniResult(plan));
 * await network.tearDown(plan.containerId, { signal });
 * ```
 */

export type { AlcorWatch } from "./alcor-device.ts";
export { NicCniError } from "./errors.ts";
export { NIC_ESTATE } from "./estate.ts";
export { inspectNics } from "./inspect.ts";
export { Journal } from "./journal.ts";
export { alcorDevice, deviceNames, ownerOf } from "./names.ts";
export { NicNetwork } from "./network.ts";
export { removePlan } from "./removal.ts";
export { cniResult } from "./result.ts";
export { planRouting } from "./routing.ts";
export { nicAgentState } from "./state-folder.ts";
export type { AlcorPlace, NeutronPlace, NicPlan, PlugSettings, SandboxPlan } from "./types.ts";
