import {
  type PortRequest,
  type PortResult,
  ProviderError,
  type ProviderReason,
  type Vpc,
  type VpcPort,
} from "#cloud/vpc";
import type { NamedNic, NicStatus } from "#kube/nic";
import { portIdentity } from "../../plan/identity.ts";
import { groupsOf, hasSubnet, withPort } from "../../plan/nic.ts";
import type { PortStep } from "../../plan/plan-pass.ts";
import type { NicFault } from "../../plan/retry.ts";
import { take } from "./take.ts";
import type { PortWork } from "./work.ts";

/** Refusals that the port of an earlier request of the same NIC can have caused: it has the address, the MAC or the last place. */
const MAY_BE_OWN: ReadonlySet<ProviderReason> = new Set(["IpInUse", "MacInUse", "SubnetFull", "ProviderQuota"]);

/** Makes ports for NICs, and takes users' ports for others. */
export async function make(
  { create: creates, take: takes }: Extract<PortStep, { do: "make" }>,
  work: PortWork,
): Promise<void> {
  const wishes = [...creates, ...takes];
  let vpc: Vpc;
  try {
    vpc = await work.vpc((one) => wishes.every(({ subnet }) => hasSubnet(one, subnet)));
  } catch (error) {
    work.fail(work.faultOf(error), new Set(wishes.map(({ name }) => name)));
    return;
  }
  const ends = await Promise.allSettled(creates.map((wish) => create(wish, vpc, work)));
  for (const wish of takes) await take(wish, vpc, work);
  // What is known is noted before a failure that ends the pass.
  for (const end of ends) if (end.status === "rejected") throw end.reason;
}

async function create(wish: NamedNic, vpc: Vpc, work: PortWork): Promise<void> {
  const result = await asked(wish, vpc, work);
  if ("error" in result) refused(result.error, { wish, vpc }, work);
  else await made(result.port, { wish, vpc }, work);
}

/** The provider's answer. Rejects with what is no failure of the provider, after the doubt about the port is noted. */
async function asked(wish: NamedNic, vpc: Vpc, work: PortWork): Promise<PortResult> {
  try {
    return await work.deps.requests.create(work.provider, requestOf(wish, vpc, work), work.options);
  } catch (error) {
    // Whether the request was sent is not known.
    work.doubt(wish.name);
    if (!(error instanceof ProviderError)) throw error;
    return { error };
  }
}

function requestOf(wish: NamedNic, vpc: Vpc, work: PortWork): PortRequest {
  const { uid, namespace, claim } = work.record;
  return {
    identity: portIdentity(uid, {
      cluster: work.deps.clusterId(),
      namespace,
      pod: claim.spec.podName,
      nic: wish.name,
    }),
    vpc,
    wish: {
      subnet: wish.subnet,
      ip: wish.ip,
      mac: wish.mac,
      ...work.groupsOf(wish),
      wantsIpv6: wish.ipv6Enabled === true,
      refusesIpv6: wish.ipv6Enabled === false,
    },
    host: work.host,
  };
}

function refused(error: ProviderError, { wish, vpc }: Wanted, work: PortWork): void {
  if (error.isAmbiguous) work.doubt(wish.name);
  const { code: reason, requestId } = error;
  work.entry.update(({ mayHavePort }) => ({
    // An earlier request, of another process too, may have made the port by the next attempt.
    isLookedUp: false,
    ...(MAY_BE_OWN.has(reason) ? { mayHavePort: new Set([...mayHavePort, wish.name]) } : {}),
  }));
  work.deps.log.info("port not made", { claim: work.record.uid, nic: wish.name, reason, requestId });
  const fault = withHolder(work.faultOf(error), { wish, vpc }, work);
  work.changeOne(wish.name, (nic) => work.failed(nic, fault));
}

async function made(port: VpcPort, { wish, vpc }: Wanted, work: PortWork): Promise<void> {
  const { record, deps, host } = work;
  deps.log.info("port made", { claim: record.uid, pod: record.claim.spec.podName, nic: wish.name, port: port.id });
  const address = port.addresses.map(({ ip }) => ip).join(", ");
  work.event("Normal", "PortCreated", `${wish.name}: port ${port.id}, ${address}`);
  let whole: Vpc;
  try {
    whole = await work.vpcOf([port], vpc);
  } catch (error) {
    // It is found again by its identity.
    work.entry.update({ isLookedUp: false });
    const fault = work.faultOf(error);
    work.changeOne(wish.name, (nic) => work.failed(nic, fault));
    return;
  }
  work.changeOne(wish.name, (nic) => {
    const full = {
      ...withPort(nic, { port, vpc: whole, created: true, wish, now: deps.clock.now() }),
      securityGroups: [...groupsOf(wish)],
    };
    return host === undefined ? full : work.bound(full, { port, host });
  });
}

interface Wanted {
  readonly wish: NamedNic;
  readonly vpc: Vpc;
}

/** A refusal of an address or a MAC with the pod of this cluster that has it, for operators. */
function withHolder(fault: NicFault, { wish, vpc }: Wanted, work: PortWork): NicFault {
  const isMeant = holds(fault.reason, wish, vpc);
  const holder = isMeant === undefined ? undefined : work.deps.ledger.podWith(isMeant, work.record);
  return holder === undefined ? fault : { ...fault, message: `${fault.message}; pod ${holder} has it` };
}

/** A test for NICs that have the address or the MAC that a wish was refused; `undefined` for other refusals. Pure. */
function holds(reason: NicFault["reason"], { ip, mac }: NamedNic, vpc: Vpc): ((nic: NicStatus) => boolean) | undefined {
  const isIn = ({ networkID = "" }: NicStatus): boolean => vpc.networks.has(networkID);
  if (reason === "IpInUse" && ip !== undefined)
    return (nic) => isIn(nic) && (nic.ips ?? []).some((one) => one.ip === ip);
  if (reason === "MacInUse" && mac !== undefined)
    return (nic) => isIn(nic) && nic.mac?.toLowerCase() === mac.toLowerCase();
  return undefined;
}
