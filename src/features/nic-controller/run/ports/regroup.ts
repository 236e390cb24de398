import { type NamedNic, tenantText } from "#kube/nic";
import { groupsOf, settled } from "../../plan/nic.ts";
import type { PortWork } from "./work.ts";

/** Gives the port of a NIC other security groups. A failure leaves the port those that it has, and the NIC works on. */
export async function regroup(wish: NamedNic, work: PortWork): Promise<void> {
  const nic = work.nic(wish.name);
  if (nic?.portID === undefined) return;
  const { provider, options, deps, record } = work;
  try {
    const vpc = await work.vpc();
    await provider.setSecurityGroups(nic.portID, { vpc, ...work.groupsOf(wish) }, options);
    deps.log.info("security groups changed", { claim: record.uid, nic: wish.name, port: nic.portID });
    work.changeOne(wish.name, (one) => ({ ...settled(one), securityGroups: [...groupsOf(wish)] }));
  } catch (error) {
    const fault = work.faultOf(error);
    work.changeOne(wish.name, (one) => ({ ...work.failed(one, fault), state: one.state }));
    if (nic.reason === fault.reason) return;
    work.event("Warning", fault.reason, `${wish.name}: the port keeps its security groups: ${tenantText(fault)}`);
  }
}
