/**
 * A real Neutron on one machine, from Debian's packages: server, database and broker in one network namespace, and on each host Open vSwitch
 * with Neutron's own agent, joined by VXLAN, or with OVN, joined by Geneve (docs/spec/vpc-nics.md#13).
 *
 * Owns: its processes, their configuration and folder, the links of the tunnels. Does not know: Kubernetes, pods.
 *
 * ```ts
 * await using bed = await NeutronBed.open({ kernel }, { cloud: { netns: "cloud", address }, hosts });
 * const { id } = await bed.api.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
 * // In another process:
 * await RunningNeutron.at({ kernel }, folder).restartSwitch("node1");
 * ```
 */
export { type MadeNetwork, NeutronApi, type NeutronObject } from "./api.ts";
export { NeutronBed, type NeutronBedHost } from "./bed.ts";
export type { MechanismDriver } from "./configs.ts";
export { missingOvnPrograms } from "./ovn.ts";
export { missingPrograms } from "./programs.ts";
export { seldomCollecting } from "./python.ts";
export { RunningNeutron } from "./running.ts";
