import { IpAddress } from "#base/ip";
import { duplicate, type FieldFault, forbidden, invalid, required, tooMany } from "#kube/crd";
import { MAX_NICS, MAX_SECURITY_GROUPS, type NamedNic } from "#kube/nic";
import { type NamedWish, PRIMARY_NIC } from "./defaults.ts";
import { briefly, isUuid, parseMac } from "./read-nics.ts";

/** The longest name of an object of a provider, in characters. */
const MAX_NAME = 255;
const NIC_NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,14}$/;
/** The devices that a node makes for ports begin so, and `lo` is there already. */
const TAKEN_NAMES = /^(?:lo$|tap|qvb|qvo|qbr|qvn|veth)/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: names must not have them.
const CONTROL = /[\x00-\x1f\x7f]/;

/** Checks a wish with its defaults (docs/spec/vpc-nics.md#1.2); all faults are returned. Pure; its texts may be any. */
export function wishFaults({ vpc, nics }: NamedWish): FieldFault[] {
  const faults: FieldFault[] = [];
  if (vpc !== undefined && !isVpc(vpc)) faults.push(invalid("vpc", briefly(vpc), "must be a VPC name or id"));
  if (vpc === undefined && nics.length > 0) faults.push(required("vpc", "NICs need a VPC"));
  if (nics.length > MAX_NICS) faults.push(tooMany("nics", nics.length, `at most ${MAX_NICS}`));
  const checked = nics.slice(0, MAX_NICS);
  for (const [at, nic] of checked.entries()) faults.push(...nicFaults(nic, `nics[${at}]`));
  faults.push(...faultsBetween(checked));
  if (nics.length > 0 && !nics.some(({ name }) => name === PRIMARY_NIC)) {
    faults.push(required("nics", `one NIC must be named ${PRIMARY_NIC}`));
  }
  return faults;
}

/** Returns true if a text can be the name or id of a VPC; it is put into CNI_ARGS and into paths. */
function isVpc(text: string): boolean {
  return isObjectName(text) && !/[/;=]/.test(text);
}

function isObjectName(text: string): boolean {
  return text !== "" && text.length <= MAX_NAME && !CONTROL.test(text);
}

/** The reason why an interface of a pod cannot have a name; `undefined` if it can. */
export function nicNameFault(name: string): string | undefined {
  const isGood = NIC_NAME.test(name) && !TAKEN_NAMES.test(name);
  return isGood ? undefined : "must be a valid interface name of at most 15 bytes";
}

function nicFaults(nic: NamedNic, path: string): FieldFault[] {
  const { name, subnet, ip, portID, securityGroup, securityGroups, mac } = nic;
  const faults: FieldFault[] = [];
  const nameFault = nicNameFault(name);
  if (nameFault !== undefined) faults.push(invalid(`${path}.name`, briefly(name), nameFault));
  if (subnet !== undefined && !isObjectName(subnet)) {
    faults.push(invalid(`${path}.subnet`, briefly(subnet), "must be a subnet name or id"));
  }
  if (ip !== undefined) faults.push(...addressFaults(nic, ip, path));
  if (portID !== undefined && !isUuid(portID))
    faults.push(invalid(`${path}.portID`, briefly(portID), "must be a UUID"));
  if (mac !== undefined && !isUnicastMac(mac)) {
    faults.push(invalid(`${path}.mac`, briefly(mac), "must be a unicast MAC address"));
  }
  const count = securityGroups?.length ?? 0;
  if (count > MAX_SECURITY_GROUPS) {
    faults.push(tooMany(`${path}.securityGroups`, count, `at most ${MAX_SECURITY_GROUPS}`));
  }
  for (const [field, group] of [
    ["securityGroup", securityGroup] as const,
    ...(securityGroups ?? []).slice(0, MAX_SECURITY_GROUPS).map((one, at) => [`securityGroups[${at}]`, one] as const),
  ]) {
    if (group !== undefined && !isObjectName(group)) {
      faults.push(invalid(`${path}.${field}`, briefly(group), "must be a security group name or id"));
    }
  }
  if (securityGroup !== undefined && securityGroups !== undefined) {
    faults.push(forbidden(`${path}.securityGroups`, "use either securityGroup or securityGroups"));
  }
  if (portID !== undefined) {
    for (const field of ["mac", "securityGroup", "securityGroups"] as const) {
      if (nic[field] !== undefined) faults.push(forbidden(`${path}.${field}`, "may not be set together with portID"));
    }
  }
  return faults;
}

function addressFaults({ subnet, portID, ipv6Enabled }: NamedNic, ip: string, path: string): FieldFault[] {
  const faults: FieldFault[] = [];
  const address = IpAddress.tryParse(ip);
  const must = "must be a unicast IP address";
  if (address === undefined || !isUnicast(address)) faults.push(invalid(`${path}.ip`, briefly(ip), must));
  else if (address.toString() !== ip) {
    // Comparisons of addresses are comparisons of texts, also at the provider.
    faults.push(invalid(`${path}.ip`, briefly(ip), `${must}, in canonical text: ${address}`));
  }
  if (subnet === undefined && portID === undefined) {
    faults.push(required(`${path}.subnet`, "subnet is needed when ip is set"));
  }
  if (address?.family === 6 && ipv6Enabled === false) {
    faults.push(invalid(`${path}.ip`, briefly(ip), "IPv6 is disabled for this NIC"));
  }
  return faults;
}

/** Returns true if an interface can have an address. Addresses of IPv4 within IPv6 are on no wire. */
function isUnicast(address: IpAddress): boolean {
  if (address.isUnspecified || address.isLoopback || address.isLinkLocal) return false;
  if (address.family === 4) return address.low32 >>> 28 !== 0xe && address.low32 !== 0xffff_ffff;
  return address.value >> 120n !== 0xffn && address.value >> 32n !== 0xffffn;
}

/** Returns true if a text is six bytes, not all zero, without the group bit (IEEE 802). */
function isUnicastMac(text: string): boolean {
  const bytes = parseMac(text)?.toBytes();
  if (bytes === undefined) return false;
  return ((bytes[0] ?? 0) & 1) === 0 && bytes.some((byte) => byte !== 0);
}

/** Values that only one NIC may have. */
function faultsBetween(nics: readonly NamedNic[]): FieldFault[] {
  const faults: FieldFault[] = [];
  const seen = new Set<string>();
  const once = (kind: string, value: string, field: string, shown = value): void => {
    const key = `${kind} ${value}`;
    if (seen.has(key)) faults.push(duplicate(field, briefly(shown)));
    seen.add(key);
  };
  let hasDefaultRoute = false;
  for (const [at, { name, subnet, ip, portID, defaultRoute }] of nics.entries()) {
    const path = `nics[${at}]`;
    once("name", name, `${path}.name`);
    if (ip !== undefined && subnet !== undefined) once("address", JSON.stringify([subnet, ip]), `${path}.ip`, ip);
    if (portID !== undefined) once("port", portID, `${path}.portID`);
    if (defaultRoute !== true) continue;
    if (hasDefaultRoute)
      faults.push(invalid(`${path}.defaultRoute`, true, "at most one NIC may have the default route"));
    hasDefaultRoute = true;
  }
  return faults;
}
