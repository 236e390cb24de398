import type { Vpc, VpcPort } from "#cloud/vpc";
import { ownPorts } from "../../plan/identity.ts";
import { withPort } from "../../plan/nic.ts";
import { nicsOf } from "../../plan/record.ts";
import type { NicFault } from "../../plan/retry.ts";
import type { PortWork } from "./work.ts";

/** Finds ports that were made already, by an earlier process or a request without an answer, and adopts them (docs/spec/vpc-nics.md#5.3). */
export async function lookUp(work: PortWork): Promise<void> {
  const { entry, deps, provider, options } = work;
  try {
    const ports = await deps.requests.find(provider, work.record.uid, options);
    entry.update({ undeleted: new Set() });
    await adopt(ports, work);
    // What a refusal has asked for says nothing of the next request, which is made after a pause.
    entry.update(({ mayHavePort }) => ({ isLookedUp: mayHavePort.size === 0, mayHavePort: new Set() }));
  } catch (error) {
    const fault = work.faultOf(error);
    entry.update({ mayHavePort: new Set() });
    // Others have their ports, and a pod may use them.
    work.change((nic) => (nic.portID === undefined ? work.failed(nic, fault) : nic));
  }
}

async function adopt(ports: readonly VpcPort[], work: PortWork): Promise<void> {
  const { uid, namespace } = work.record;
  const recorded = new Map(
    nicsOf(work.record).flatMap(({ name, portID }) => (portID === undefined ? [] : [[name, portID]])),
  );
  if (ownPorts(ports, uid, recorded, namespace).size === 0) return;
  const vpc = await work.vpc();
  // Whoever may make ports can give them any name, device and owner; one elsewhere is not this pod's.
  const inVpc = ports.filter(({ networkId }) => networkId === "" || vpc.networks.has(networkId));
  const empty = await deleteEmpty(inVpc, work);
  const own = ownPorts(
    inVpc.filter(({ id }) => !empty.has(id)),
    uid,
    recorded,
    namespace,
  );
  const adopted = nicsOf(work.record).flatMap(({ name, portID }) =>
    portID === undefined ? (own.get(name)?.port ?? []) : [],
  );
  const whole = await work.vpcOf(adopted, vpc);
  work.entry.update({ surplus: [...own.values()].flatMap(({ surplus }) => surplus.map(({ id }) => id)) });
  record(own, whole, work);
}

function record(own: ReturnType<typeof ownPorts>, vpc: Vpc, work: PortWork): void {
  const { log, clock } = work.deps;
  const { uid, claim } = work.record;
  work.change((nic) => {
    const found = own.get(nic.name);
    if (nic.portID !== undefined || found === undefined) return nic;
    log.info("port adopted", { claim: uid, nic: nic.name, port: found.port.id });
    const wish = claim.spec.nics.find(({ name }) => name === nic.name);
    return withPort(nic, { port: found.port, vpc, created: true, wish, now: clock.now() });
  });
}

/**
 * Deletes ports that were made for NICs without one and have no address, as in a network without subnets: they are of no use (docs/spec/vpc-nics.md#6.3).
 * Returns their ids, also of those that cannot be deleted: their NICs show why, and the next look-up finds them.
 */
async function deleteEmpty(ports: readonly VpcPort[], work: PortWork): Promise<ReadonlySet<string>> {
  const empty = new Set<string>();
  const { uid, namespace } = work.record;
  const wanting = new Set(nicsOf(work.record).flatMap(({ name, portID }) => (portID === undefined ? [name] : [])));
  for (const [nic, { port, surplus }] of ownPorts(ports, uid, new Map(), namespace)) {
    if (!wanting.has(nic)) continue;
    for (const one of [port, ...surplus]) {
      if (one.addresses.length > 0) continue;
      empty.add(one.id);
      const fault = await deleteOne(nic, one, work);
      work.changeOne(nic, (old) => work.failed(old, fault));
    }
  }
  return empty;
}

async function deleteOne(nic: string, { id, networkId }: VpcPort, work: PortWork): Promise<NicFault> {
  const { provider, deps, record: of, options } = work;
  try {
    await provider.deletePort(id, options);
  } catch (error) {
    const fault = work.faultOf(error);
    work.entry.update(({ undeleted }) => ({ undeleted: new Set([...undeleted, nic]) }));
    return fault;
  }
  deps.log.info("port without an address deleted", { claim: of.uid, nic, port: id });
  const message = `network ${networkId} has no subnet that gives an address`;
  return { reason: "NoAddress", message, retry: "slow" };
}
