import { ProviderError, type Vpc, type VpcPort } from "#cloud/vpc";
import type { NamedNic } from "#kube/nic";
import { DEVICE_OWNER, podOfPort } from "../../plan/identity.ts";
import { addressOfUnknownSubnet, portFault, savedDevice, withPort } from "../../plan/nic.ts";
import { nicsOf } from "../../plan/record.ts";
import type { NicFault } from "../../plan/retry.ts";
import { storeStatus } from "../claim-writes.ts";
import type { PortWork } from "./work.ts";

/** Takes a port of the user (docs/spec/vpc-nics.md#6.5). What it had is stored before it is changed. */
export async function take(wish: NamedNic, known: Vpc, work: PortWork): Promise<void> {
  try {
    const id = wish.portID ?? "";
    const port = (await work.provider.getPorts([id], work.options)).get(id);
    const isWhole = port === undefined || isOfVpc(port, known);
    const vpc = isWhole ? known : await work.vpc((one) => isOfVpc(port, one));
    const fault = faultOf(port, { wish, vpc }, work);
    if (fault !== undefined) work.changeOne(wish.name, (nic) => work.failed(nic, fault));
    else if (port !== undefined) await bind(port, { wish, vpc }, work);
  } catch (error) {
    const fault = work.faultOf(error);
    if (error instanceof ProviderError && error.isAmbiguous) work.doubt(wish.name);
    work.changeOne(wish.name, (nic) => work.failed(nic, fault));
  }
}

interface Wanted {
  readonly wish: NamedNic;
  readonly vpc: Vpc;
}

/** The fault of a port that cannot be taken. */
function faultOf(port: VpcPort | undefined, { wish, vpc }: Wanted, work: PortWork): NicFault | undefined {
  const { record, host, deps } = work;
  const id = wish.portID ?? "";
  const uid = deps.ledger.holderOf(id, record);
  return portFault(port, {
    wish,
    vpc,
    podUID: record.uid,
    host,
    holder: uid === undefined ? undefined : `pod ${deps.ledger.holderName(id) ?? ""} (uid ${uid})`,
    madeFor: port === undefined ? undefined : podOfPort(port, deps.clusterId()),
    other: nicsOf(record).find(({ name, portID }) => name !== wish.name && portID === id)?.name,
    projectID: record.claim.spec.projectID,
  });
}

async function bind(port: VpcPort, { wish, vpc }: Wanted, work: PortWork): Promise<void> {
  const { provider, host, deps, entry, options } = work;
  const { uid } = work.record;
  await work.vpcOf([port], vpc);
  deps.ledger.hold(port.id, work.record);
  work.changeOne(wish.name, (nic) => ({
    ...nic,
    portID: port.id,
    createdByController: false,
    savedDevice: savedDevice(nic, port, uid),
  }));
  await storeStatus(deps.api, entry, options);
  const device = { host: host ?? port.binding.host, deviceId: uid, deviceOwner: DEVICE_OWNER };
  const taken = await provider.bindPort(port.id, device, { ...options, ifRevision: port.revision });
  const whole = await work.vpcOf([taken], vpc);
  work.changeOne(wish.name, (nic) => {
    const made = withPort(nic, { port: taken, vpc: whole, created: false, wish, now: deps.clock.now() });
    return host === undefined ? made : work.bound(made, { port: taken, host });
  });
}

/** True if a VPC has the network of a port, and the subnets of its addresses. */
function isOfVpc(port: VpcPort, vpc: Vpc): boolean {
  return vpc.networks.has(port.networkId) && addressOfUnknownSubnet(port, vpc) === undefined;
}
