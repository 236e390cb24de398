/**
 * The NICs of sandboxes on a node: devices, addresses, routes and rules, ports of Open vSwitch (docs/spec/vpc-nics.md#8), and devices that Alcor's
 * agent makes (docs/spec/vpc-nics.md#9). A kind of device is a folder with a {@link NicDevice}, and a line of `devices.ts`.
 *
 * Owns: the plan as data, from a claim on, the journal, making and removing NICs, their devices (alias `isthmus-nic:`), tables 101 and on and their rules in
 * sandboxes. Does not know: the API server, the calls of CNI.
 *
 * ```ts
 * const plan = await network.setUp(wanted, { signal }); // all NICs, or none
 * console.log(cniResult(plan));
 * await network.tearDown(plan.containerId, { signal });
 * ```
 */
export type { DeviceWatch, NicDevice } from "./device.ts";
export { DEVICES } from "./devices.ts";
export { NicCniError } from "./errors.ts";
export { NIC_ESTATE } from "./estate.ts";
export { inspectNics } from "./inspect.ts";
export { Journal } from "./journal.ts";
export { ownerOf } from "./names.ts";
export { NicNetwork } from "./network.ts";
export { type NeutronPlace, switchesOf } from "./ovs/place.ts";
export { type NodeSettings, planAdded, planClaim, shownNics } from "./plan-claim.ts";
export { removePlan } from "./removal.ts";
export { cniResult } from "./result.ts";
export { planRouting } from "./routing.ts";
export { nicAgentState } from "./state-folder.ts";
export type { NicPlan, SandboxPlan } from "./types.ts";
