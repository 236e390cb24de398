import { instant, restored } from "../../plan/nic.ts";
import { type GiveUpPlan, planGiveUp } from "../../plan/plan-release.ts";
import { nicsOf } from "../../plan/record.ts";
import { forAll, type PortWork } from "./work.ts";

/**
 * Releases the ports of NICs that the pod does not want any more. A NIC is forgotten once nothing of it is left, and no request for its port can
 * still be under way: a NIC of the same name would get that port.
 */
export async function giveUp(names: readonly string[], work: PortWork): Promise<void> {
  const { deps, provider, options } = work;
  let plans: readonly GiveUpPlan[];
  try {
    const ports = await deps.requests.find(provider, work.record.uid, options);
    plans = planGiveUp(work.record, names, ports);
  } catch (error) {
    work.fail(work.faultOf(error), new Set(names));
    return;
  }
  await forAll(plans, (plan) => giveUpOne(plan, work));
}

async function giveUpOne({ nic, deletes, isLent }: GiveUpPlan, work: PortWork): Promise<void> {
  const { provider, deps, options } = work;
  const { name, portID } = nic;
  try {
    for (const id of deletes) await provider.deletePort(id, options);
    if (isLent && portID !== undefined) await provider.releasePort(portID, restored(nic), options);
  } catch (error) {
    const fault = work.faultOf(error);
    work.changeOne(name, (one) => work.failed(one, fault));
    return;
  }
  const { doubtful, doubtUntil, uid } = work.record;
  const doubtMs = doubtful.has(name) ? doubtUntil - deps.clock.monotonic() : 0;
  if (doubtMs > 0) {
    work.changeOne(name, (one) => ({ ...one, nextRetryAt: instant(deps.clock.now() + doubtMs) }));
    return;
  }
  if (portID !== undefined) deps.ledger.free(portID, work.record);
  work.entry.update((record) => ({
    status: { ...record.status, nics: nicsOf(record).filter((one) => one.name !== name) },
  }));
  deps.log.info("NIC given up", { claim: uid, nic: name, port: portID });
  for (const id of deletes) work.event("Normal", "PortDeleted", `${name}: port ${id}`);
}
