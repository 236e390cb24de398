import type { VpcPort } from "#cloud/vpc";
import type { NicStatus } from "#kube/nic";
import { DEVICE_OWNER } from "../../plan/identity.ts";
import { BINDING_TRIES, bindingOf, settled } from "../../plan/nic.ts";
import type { PortWork } from "./work.ts";

/** Binds the port of a NIC to a host. A port that does not exist any more is missing from then on. */
export async function bind(name: string, host: string, work: PortWork): Promise<void> {
  await rebound(name, host, work, async (port, nic) => {
    const tries = nic.reason === "BindingFailed" ? (nic.attempts ?? 0) + 1 : 1;
    const agents = tries >= BINDING_TRIES ? await work.provider.describeHost(host, work.options) : undefined;
    work.changeOne(name, (one) => work.bound(one, { port, host, agents }));
  });
}

/** Takes the binding of a port; it is bound again by the next step, also by another process. */
export async function unbind(name: string, work: PortWork): Promise<void> {
  await rebound(name, "", work, async (port) => {
    const { deps, record } = work;
    deps.log.info("device lost, so the port is bound anew", { claim: record.uid, nic: name, port: port.id });
    work.changeOne(name, (one) => ({ ...settled(one), ...bindingOf(port), state: "InProgress" }));
  });
}

async function rebound(
  name: string,
  host: string,
  work: PortWork,
  onBound: (port: VpcPort, nic: NicStatus) => Promise<void>,
): Promise<void> {
  const nic = work.nic(name);
  const id = nic?.portID;
  if (nic === undefined || id === undefined) return;
  try {
    const port = await rebind(nic, id, host, work);
    if (port !== undefined) await onBound(port, nic);
  } catch (error) {
    const fault = work.faultOf(error);
    if (fault.reason === "PortNotFound")
      work.entry.update(({ observation }) => ({ observation: { ...observation, missing: new Set([id]) } }));
    else work.changeOne(name, (one) => work.failed(one, fault));
  }
}

/** Binds the port of a NIC to a host, or to none. Resolves to `undefined` if a user's port is another device's by now, which the NIC then shows. */
async function rebind(
  { name, createdByController }: NicStatus,
  id: string,
  host: string,
  work: PortWork,
): Promise<VpcPort | undefined> {
  const { provider, record, options } = work;
  let ifRevision: number | undefined;
  if (createdByController === false) {
    const port = (await provider.getPorts([id], options)).get(id);
    if (port !== undefined && port.deviceId !== record.uid) {
      takenAway(name, port, work);
      return undefined;
    }
    ifRevision = port?.revision;
  }
  const device = { host, deviceId: record.uid, deviceOwner: DEVICE_OWNER };
  return provider.bindPort(id, device, { ...options, ifRevision });
}

function takenAway(name: string, { id, deviceId }: VpcPort, work: PortWork): void {
  const holder = work.deps.ledger.podWith((one) => one.portID === id, work.record);
  const by = holder === undefined ? "" : `pod ${holder}, `;
  const message = `port ${id} is in use by ${by}device ${deviceId || "(none)"}: it was taken away from the pod`;
  work.changeOne(name, (one) => work.failed(one, { reason: "PortInUse", message, retry: "slow" }));
}
