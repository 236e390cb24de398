import { Cidr, type IpAddress } from "#base/ip";
import type { ByteString, ElementValue } from "#kernel/nft-elements";
import { frontEndId, NO_ENDPOINTS, type ObservedFrontEnd, slotBytes } from "../plan/index.ts";
import { baseChains, type Chain, parseShape, type RuleOptions, SETS, shapeChains } from "../rules/index.ts";
import type { TraceContext } from "./types.ts";

/** A table as front ends and plain sets. */
export interface TracedTable {
  readonly frontEnds: ReadonlyMap<string, ObservedFrontEnd>;
  readonly clusterIPs: ReadonlySet<ByteString>;
  readonly hairpinEndpoints: ReadonlySet<ByteString>;
  readonly nodePortIPs: ReadonlySet<ByteString>;
  readonly serviceCIDRs: readonly Cidr[];
}

interface FrontEndSet {
  readonly isNodePort: boolean;
  readonly hasSlot: boolean;
}

const BY_ADDRESS: FrontEndSet = { isNodePort: false, hasSlot: false };
const BY_NODE_PORT: FrontEndSet = { isNodePort: true, hasSlot: false };
/** Sets whose keys begin with the key of a front end. */
const FRONT_END_SETS: Readonly<Record<string, FrontEndSet>> = {
  [SETS.serviceIps]: BY_ADDRESS,
  [SETS.localVerdicts]: BY_ADDRESS,
  [SETS.noEndpoints]: BY_ADDRESS,
  [SETS.firewallVips]: BY_ADDRESS,
  [SETS.endpoints]: { ...BY_ADDRESS, hasSlot: true },
  [SETS.endpointsLocal]: { ...BY_ADDRESS, hasSlot: true },
  [SETS.nodePorts]: BY_NODE_PORT,
  [SETS.nodePortLocalVerdicts]: BY_NODE_PORT,
  [SETS.noEndpointsNodePorts]: BY_NODE_PORT,
  [SETS.nodePortEndpoints]: { ...BY_NODE_PORT, hasSlot: true },
  [SETS.nodePortEndpointsLocal]: { ...BY_NODE_PORT, hasSlot: true },
};

/** The context of a table: for `explain` and tests, a planned or an observed one. Pure. */
export function traceContext(
  table: TracedTable,
  options: RuleOptions,
  localAddresses: readonly IpAddress[],
): TraceContext {
  const byKey = (key: ByteString, isNodePort: boolean): ObservedFrontEnd | undefined =>
    table.frontEnds.get(frontEndId({ key, isNodePort }));
  return {
    chains: chainsOf(table, options),
    lookup: (set, key) => lookUp(table, byKey, set, key),
    serviceOf: (set, key) => serviceOf(byKey, set, key),
    mark: options.mark,
    allowed: (key) => (byKey(key, false)?.sourceRanges ?? []).map((text) => Cidr.parse(text)),
    localAddresses,
    serviceCIDRs: table.serviceCIDRs,
  };
}

function chainsOf({ frontEnds }: TracedTable, options: RuleOptions): ReadonlyMap<string, Chain> {
  const names = new Set<string>();
  for (const { verdict, localVerdict } of frontEnds.values()) {
    for (const one of [verdict, localVerdict]) if (one !== undefined && "chain" in one) names.add(one.chain);
  }
  const timeouts = [...new Set(Array.from(frontEnds.values(), (one) => one.affinitySeconds))].filter((one) => one > 0);
  const shapes = [...names].flatMap((name) => {
    const shape = parseShape(name);
    return shape === undefined ? [] : shapeChains(shape, options);
  });
  return new Map([...baseChains(options, timeouts), ...shapes].map((chain) => [chain.name, chain]));
}

function lookUp(
  table: TracedTable,
  byKey: (key: ByteString, isNodePort: boolean) => ObservedFrontEnd | undefined,
  set: string,
  key: ByteString,
): ElementValue | true | undefined {
  const present = (set: ReadonlySet<ByteString>): true | undefined => set.has(key) || undefined;
  switch (set) {
    case SETS.clusterIps:
      return present(table.clusterIPs);
    case SETS.hairpin:
      return present(table.hairpinEndpoints);
    case SETS.nodePortIps:
      return present(table.nodePortIPs);
    case SETS.affinity:
      return undefined; // a new client has no affinity entry
    case SETS.affinityKeys:
    case SETS.nodePortAffinityKeys:
      return byKey(key, set === SETS.nodePortAffinityKeys)?.affinityKey;
    case SETS.serviceIps:
    case SETS.nodePorts:
      return byKey(key, set === SETS.nodePorts)?.verdict;
    case SETS.localVerdicts:
    case SETS.nodePortLocalVerdicts:
      return byKey(key, set === SETS.nodePortLocalVerdicts)?.localVerdict;
    case SETS.noEndpoints:
    case SETS.noEndpointsNodePorts:
      return byKey(key, set === SETS.noEndpointsNodePorts)?.noEndpoints === true ? NO_ENDPOINTS : undefined;
    case SETS.firewallVips:
      return byKey(key, false)?.sourceRanges === undefined ? undefined : true;
    case SETS.endpoints:
    case SETS.nodePortEndpoints:
      return slotIn(byKey(key.slice(0, -4), set === SETS.nodePortEndpoints)?.slots, key);
    case SETS.endpointsLocal:
    case SETS.nodePortEndpointsLocal:
      return slotIn(byKey(key.slice(0, -4), set === SETS.nodePortEndpointsLocal)?.localSlots, key);
    default: {
      const match = /^(np-)?affinity-(\d+)$/.exec(set);
      if (match === null) throw new Error(`there is no set ${set}`);
      return byKey(key, match[1] !== undefined)?.affinitySeconds === Number(match[2]) ? true : undefined;
    }
  }
}

/** The service port of an element. Keys of endpoint elements end in the slot, which is cut off here. */
function serviceOf(
  byKey: (key: ByteString, isNodePort: boolean) => ObservedFrontEnd | undefined,
  set: string,
  key: ByteString,
): string | undefined {
  const frontEnd = FRONT_END_SETS[set];
  if (frontEnd === undefined) return undefined;
  return byKey(frontEnd.hasSlot ? key.slice(0, -4) : key, frontEnd.isNodePort)?.service;
}

function slotIn(slots: readonly (ByteString | undefined)[] | undefined, key: ByteString): ByteString | undefined {
  return slots?.find((_, slot) => key.endsWith(slotBytes(slot)));
}
