import type { Cidr } from "#base/ip";
import type { UsedBy } from "../access/index.ts";
import type { ClientUse } from "./gateways.ts";
import type { ClientPod, ClosedDestinations, Gateway } from "./plan.ts";

/** The Egresses that a pod used at its last comparison. It has at most one entry for each Egress that the pod used. */
export interface HeldEgresses {
  /** The Egresses, by `namespace/name`. */
  readonly egresses: ReadonlyMap<string, HeldEgress>;
  /** Destinations that the pod's own routes had when this process compared it first. It is not known whose they are. */
  readonly found: ClosedDestinations;
}

interface HeldEgress {
  readonly by: UsedBy;
  readonly destinations: readonly Cidr[];
  /** Empty while it is closed. */
  readonly gateways: readonly Gateway[];
  /** Destinations that its Service has no address for; they are closed too. */
  readonly lacking: readonly Cidr[];
}

/** The state that the namespace of a pod must have. */
export interface ClientWish {
  readonly gateways: readonly Gateway[];
  readonly closed: ClosedDestinations;
  /** To be given to the next call, once the namespace has all of this. */
  readonly held: HeldEgresses;
  /** True if the namespace must stay as it is: the Service of an Egress is missing, and this process does not know what the pod had of it. */
  readonly isFrozen: boolean;
}

/** The state of a pod that never used an Egress. */
export const NOTHING_HELD: HeldEgresses = { egresses: new Map(), found: { annotation: [], selector: [] } };

/**
 * Pure: what a pod has of its Egresses, where destinations that it may not use, or not use any more, stay closed instead of leaving with the pod's own address
 * (docs/spec/pod-network.md#7.6):
 *
 * - of an Egress that it names and may not use, the Egress's destinations;
 * - of one whose Service lacks a family that the pod has, the destinations of that family;
 * - of one that it names and that is gone, those that it had: by the memory, else those of its own routes that no other Egress of it has;
 * - of one that selected it and does not any more, those that it had. They open when the pod is selected again, or an annotation names the Egress and is taken away.
 *
 * Without the annotation nothing of a named Egress is left.
 */
export function keepClosed(uses: readonly ClientUse[], held: HeldEgresses): ClientWish {
  const next = new Map<string, HeldEgress>();
  const gateways: Gateway[] = [];
  const closed = { annotation: [] as Cidr[], selector: [] as Cidr[] };
  let isUnknown = false;
  let isRepairing = false;
  for (const use of uses) {
    const key = keyOf(use.egress);
    const before = held.egresses.get(key);
    const now = nowOf(use, before);
    if (now === undefined) {
      isUnknown = true;
      isRepairing ||= use.state === "repairing";
      continue;
    }
    next.set(key, now);
    gateways.push(...now.gateways);
    if (now.gateways.length === 0) closed[use.by].push(...now.destinations);
  }
  for (const [key, one] of held.egresses) {
    if (one.by !== "selector" || next.has(key) || uses.some(({ egress }) => keyOf(egress) === key)) continue;
    next.set(key, { ...one, gateways: [], lacking: [] });
    closed.selector.push(...one.destinations);
  }
  const owned = new Set([...next.values()].flatMap(({ destinations }) => destinations.map(String)));
  const unowned = (all: readonly Cidr[]): readonly Cidr[] => all.filter((dst) => !owned.has(String(dst)));
  const found = { annotation: isUnknown ? unowned(held.found.annotation) : [], selector: unowned(held.found.selector) };
  closed.annotation.push(...found.annotation);
  closed.selector.push(...found.selector);
  const isRefused = uses.some(({ state }) => state === "refused");
  const isFrozen = isRepairing && !isRefused && closed.selector.length === 0;
  for (const { by, gateways, lacking } of next.values()) if (gateways.length > 0) closed[by].push(...lacking);
  return { gateways, closed, held: { egresses: next, found }, isFrozen };
}

/**
 * Pure: with what the pod's own routes keep of a family of which no address is known: that it has none is in doubt, and closed is the state of doubt. `found`: what all of
 * them keep; asked only if an address is missing.
 */
export function withLackingFamilies(
  closed: ClosedDestinations,
  addresses: ClientPod["addresses"],
  found: () => ClosedDestinations,
): ClosedDestinations {
  if (addresses[4] !== undefined && addresses[6] !== undefined) return closed;
  const { annotation, selector } = found();
  const isLacking = ({ family }: Cidr): boolean => addresses[family] === undefined;
  return {
    annotation: [...closed.annotation, ...annotation.filter(isLacking)],
    selector: [...closed.selector, ...selector.filter(isLacking)],
  };
}

/** `undefined`: this process does not know what the pod had of the Egress. */
function nowOf(
  { by, state, destinations, gateways, lacking }: ClientUse,
  before: HeldEgress | undefined,
): HeldEgress | undefined {
  switch (state) {
    case "ready":
      return { by, destinations, gateways, lacking };
    case "refused":
      return { by, destinations, gateways: [], lacking: [] };
    case "missing":
      return before === undefined ? undefined : { ...before, by, gateways: [], lacking: [] };
    case "repairing":
      return before === undefined ? undefined : { ...before, by };
  }
}

const keyOf = ({ namespace, name }: ClientUse["egress"]): string => `${namespace}/${name}`;
