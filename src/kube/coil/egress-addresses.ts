import { Cidr } from "#base/ip";
import { type FieldFault, forbidden } from "#kube/crd";
import { egressPoolName } from "./keys.ts";
import { type PoolInput, validatePoolCreate, validatePoolUpdate } from "./pool-validation.ts";
import type { EgressSpec, SubnetSet } from "./types.ts";

/** The fields of an Egress that these rules read. */
export interface AddressedEgress {
  readonly metadata?: { readonly name?: string | undefined; readonly namespace?: string | undefined };
  readonly spec?: Pick<EgressSpec, "addresses" | "replicas" | "strategy"> | undefined;
}

/** The facts of the cluster that the rules of `spec.addresses` read. If a field is absent, its rules are not checked. */
export interface AddressContext {
  /** The pools of the cluster; that of the Egress may be among them. */
  readonly pools?: Iterable<PoolInput> | undefined;
  /** The Egresses of the cluster; the checked one may be among them. */
  readonly egresses?: Iterable<AddressedEgress> | undefined;
  /** The ranges that Egresses may have addresses of. */
  readonly addressRanges?: readonly Cidr[] | undefined;
}

/** All faults of `spec.addresses`, whose entries are the subnets of the Egress's own pool with blocks of one address. `old`: before a change. */
export function addressFaults(
  egress: AddressedEgress,
  old: AddressedEgress | undefined,
  context: AddressContext,
): FieldFault[] {
  const pool = poolOf(egress);
  if (pool === undefined) return [];
  const before = old === undefined ? undefined : poolOf(old);
  const others = { others: [...othersOf(egress, context)] };
  const faults = before === undefined ? validatePoolCreate(pool, others) : validatePoolUpdate(before, pool, others);
  const own = faults.filter(({ field }) => field.startsWith("spec.subnets")).map(inWordsOfEgress);
  const { addressRanges } = context;
  const first = old?.spec?.addresses?.length ?? 0;
  const outside = addressRanges === undefined ? [] : outsideOfRanges(egress.spec?.addresses ?? [], addressRanges);
  const added = outside.filter(({ at }) => at >= first).map(({ fault }) => fault);
  return [...own, ...added.filter(({ field }) => !own.some((other) => field.startsWith(other.field)))];
}

/** Pure: the entries that are not inside one of the ranges. A text that is not a CIDR is another rule's. */
export function outsideOfRanges(
  addresses: readonly SubnetSet[],
  ranges: readonly Cidr[],
): { readonly at: number; readonly fault: FieldFault }[] {
  return addresses.flatMap((entry, at) =>
    (["ipv4", "ipv6"] as const).flatMap((family) => {
      const cidr = Cidr.tryParse(entry[family] ?? "");
      const isInside = (range: Cidr): boolean =>
        cidr !== undefined && range.contains(cidr.base) && range.prefixLength <= cidr.prefixLength;
      if (cidr === undefined || ranges.some(isInside)) return [];
      const why =
        ranges.length === 0
          ? "coil-egress-controller runs without --egress-address-range: no Egress may have addresses of its own"
          : `is not inside a range of coil-egress-controller's --egress-address-range: ${ranges.join(", ")}`;
      return [{ at, fault: forbidden(`spec.addresses[${at}].${family}`, why) }];
    }),
  );
}

/** Returns warnings about fields that are allowed and may not work as expected. */
export function addressWarnings({ spec }: AddressedEgress): string[] {
  const { addresses = [], replicas = 1, strategy } = spec ?? {};
  const count = addresses.reduce((sum, entry) => sum + sizeOf(entry), 0);
  if (count === 0) return [];
  const warnings: string[] = [];
  if (replicas > count)
    warnings.push(
      `spec.replicas: ${replicas} routers share ${count} addresses: ${replicas - count} of them will not start`,
    );
  const { type, rollingUpdate } = strategy ?? {};
  const surges =
    strategy !== undefined && type !== "Recreate" && ![0, "0", "0%"].includes(rollingUpdate?.maxSurge ?? "25%");
  if (surges && replicas >= count)
    warnings.push(
      "spec.strategy: an update waits for ever where no address is free for one more router: set rollingUpdate.maxSurge to 0",
    );
  return warnings;
}

function sizeOf({ ipv4, ipv6 }: SubnetSet): number {
  const cidr = Cidr.tryParse(ipv4 ?? ipv6 ?? "");
  return cidr === undefined ? 0 : 2 ** cidr.hostBits;
}

function poolOf({ metadata = {}, spec }: AddressedEgress): PoolInput | undefined {
  if (spec?.addresses === undefined) return undefined;
  const { namespace = "", name = "" } = metadata;
  return {
    metadata: { name: egressPoolName({ namespace, name }) },
    spec: { blockSizeBits: 0, subnets: spec.addresses },
  };
}

/** The pools, and those that other Egresses will have. */
function* othersOf(egress: AddressedEgress, { pools = [], egresses = [] }: AddressContext): Generator<PoolInput> {
  const own = poolOf(egress)?.metadata.name;
  const ofEgresses = new Set<string>();
  for (const other of egresses) {
    const pool = poolOf(other);
    if (pool?.metadata.name === undefined || pool.metadata.name === own) continue;
    ofEgresses.add(pool.metadata.name);
    const { namespace, name } = other.metadata ?? {};
    yield { ...pool, metadata: { name: `${pool.metadata.name}, which is that of Egress ${namespace}/${name}` } };
  }
  for (const pool of pools) if (!ofEgresses.has(pool.metadata.name ?? "")) yield pool;
}

function inWordsOfEgress({ field, message, ...rest }: FieldFault): FieldFault {
  const words = (text: string): string => text.replaceAll("spec.subnets", "spec.addresses");
  return { ...rest, field: words(field), message: words(message) };
}
