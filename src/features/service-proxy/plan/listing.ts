import { Cidr, IpAddress } from "#base/ip";
import type { ByteString, RawElement, Verdict } from "#kernel/nft-elements";
import { SETS } from "../rules/index.ts";
import { frontEndId, type ObservedFrontEnd } from "./front-end.ts";
import { slotOf } from "./keys.ts";

/** A listed table, in the terms of the plan. */
export interface ListedTable {
  readonly frontEnds: ReadonlyMap<string, ObservedFrontEnd>;
  readonly clusterIPs: ReadonlySet<ByteString>;
  readonly hairpinEndpoints: ReadonlySet<ByteString>;
  /** Elements that no plan makes, with their sets: other programs', to be deleted. */
  readonly unowned: readonly { readonly set: string; readonly element: RawElement }[];
}

/** A front end while it is put together. */
interface Parts {
  key: ByteString;
  isNodePort: boolean;
  service: string;
  verdict: Verdict | undefined;
  localVerdict: Verdict | undefined;
  noEndpoints: boolean;
  slots: (ByteString | undefined)[];
  localSlots: (ByteString | undefined)[];
  affinitySeconds: number;
  affinityKey: ByteString | undefined;
  sourceRanges: string[] | undefined;
  isGuarded: boolean;
}

/** A number above the endpoints of any Service; an element with a larger slot number was not made by this proxy. */
const MAX_SLOTS = 100_000;
/** Length of protocol and port, in bytes. */
const PORT_BYTES = 8;

/**
 * Reads a listing, which has the elements of each set. A table that an earlier run left can then be compared like any other table. Pure.
 */
export function readListing(listing: ReadonlyMap<string, readonly RawElement[]>): ListedTable {
  const reader = new ListingReader();
  for (const [set, elements] of listing) for (const element of elements) reader.take(set, element);
  return reader.finish(listing);
}

class ListingReader {
  readonly #parts = new Map<string, Parts>();
  readonly #unowned: { set: string; element: RawElement }[] = [];

  take(set: string, element: RawElement): void {
    if (!this.#takeKnown(set, element)) this.#unowned.push({ set, element });
  }

  /** Takes an element. Returns false if no plan makes such an element. */
  #takeKnown(set: string, element: RawElement): boolean {
    const { key, value } = element;
    const verdict = typeof value === "object" ? value : undefined;
    switch (set) {
      case SETS.clusterIps:
      case SETS.hairpin:
      case SETS.affinity:
      case SETS.nodePortIps:
      case SETS.serviceCidrs:
        return true;
      case SETS.serviceIps:
      case SETS.nodePorts:
        return this.#edit(key, set === SETS.nodePorts, element, (parts) => {
          parts.verdict = verdict;
        });
      case SETS.localVerdicts:
      case SETS.nodePortLocalVerdicts:
        return this.#edit(key, set === SETS.nodePortLocalVerdicts, element, (parts) => {
          parts.localVerdict = verdict;
        });
      case SETS.noEndpoints:
      case SETS.noEndpointsNodePorts:
        return this.#edit(key, set === SETS.noEndpointsNodePorts, element, (parts) => {
          parts.noEndpoints = true;
        });
      case SETS.endpoints:
      case SETS.nodePortEndpoints:
        return this.#slot(element, set === SETS.nodePortEndpoints, "slots");
      case SETS.endpointsLocal:
      case SETS.nodePortEndpointsLocal:
        return this.#slot(element, set === SETS.nodePortEndpointsLocal, "localSlots");
      case SETS.affinityKeys:
      case SETS.nodePortAffinityKeys:
        return this.#edit(key, set === SETS.nodePortAffinityKeys, element, (parts) => {
          parts.affinityKey = typeof value === "string" ? value : undefined;
        });
      case SETS.firewallVips:
        return this.#edit(key, false, element, (parts) => {
          parts.isGuarded = true;
        });
      case SETS.firewallAllow:
        return this.#allow(element);
      default:
        return this.#affinity(set, element);
    }
  }

  #edit(key: ByteString, isNodePort: boolean, { comment }: RawElement, edit: (parts: Parts) => void): boolean {
    const id = frontEndId({ key, isNodePort });
    const parts = this.#parts.get(id) ?? emptyParts(key, isNodePort);
    this.#parts.set(id, parts);
    if (comment !== undefined) parts.service = comment;
    edit(parts);
    return true;
  }

  #slot(element: RawElement, isNodePort: boolean, list: "slots" | "localSlots"): boolean {
    const slot = slotOf(element.key);
    const { value } = element;
    if (slot < 0 || slot >= MAX_SLOTS || typeof value !== "string") return false;
    return this.#edit(element.key.slice(0, -4), isNodePort, element, (parts) => {
      parts[list][slot] = value;
    });
  }

  #allow(element: RawElement): boolean {
    const addressBytes = (element.key.length - PORT_BYTES) / 2;
    const at = addressBytes + PORT_BYTES;
    const source = cidrBetween(element.key.slice(at), (element.keyEnd ?? element.key).slice(at));
    if (source === undefined) return false;
    return this.#edit(element.key.slice(0, at), false, element, (parts) => {
      parts.sourceRanges = [...(parts.sourceRanges ?? []), source.toString()];
    });
  }

  #affinity(set: string, element: RawElement): boolean {
    const match = /^(np-)?affinity-(\d{1,5})$/.exec(set);
    if (match === null) return false;
    return this.#edit(element.key, match[1] !== undefined, element, (parts) => {
      parts.affinitySeconds = Number(match[2]);
    });
  }

  finish(listing: ReadonlyMap<string, readonly RawElement[]>): ListedTable {
    const keys = (set: string): Set<ByteString> => new Set((listing.get(set) ?? []).map(({ key }) => key));
    return {
      frontEnds: new Map(Array.from(this.#parts, ([id, parts]) => [id, observedFrontEnd(parts)])),
      clusterIPs: keys(SETS.clusterIps),
      hairpinEndpoints: keys(SETS.hairpin),
      unowned: this.#unowned,
    };
  }
}

function emptyParts(key: ByteString, isNodePort: boolean): Parts {
  return {
    key,
    isNodePort,
    service: "",
    verdict: undefined,
    localVerdict: undefined,
    noEndpoints: false,
    slots: [],
    localSlots: [],
    affinitySeconds: 0,
    affinityKey: undefined,
    sourceRanges: undefined,
    isGuarded: false,
  };
}

function observedFrontEnd({ sourceRanges, ...parts }: Parts): ObservedFrontEnd {
  // Fills holes of the arrays with undefined.
  const lists = { slots: Array.from(parts.slots), localSlots: Array.from(parts.localSlots) };
  return { ...parts, ...lists, sourceRanges: sourceRanges?.sort() };
}

/**
 * The prefixes in an interval set of addresses, as text, sorted and joined; a range that is not a prefix reads `no prefix`. The elements
 * are those of a listing, in any order: the first address of each range, and the address after it. Pure.
 */
export function cidrsIn(elements: readonly RawElement[]): string {
  const bounds = elements.map(({ key, isEnd = false }) => ({ key, isEnd }));
  bounds.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : Number(b.isEnd) - Number(a.isEnd)));
  const found: string[] = [];
  let first: ByteString | undefined;
  const end = (last: ByteString): void => {
    if (first !== undefined) found.push(String(cidrBetween(first, last) ?? "no prefix"));
    first = undefined;
  };
  for (const { key, isEnd } of bounds) {
    if (isEnd) end(before(key));
    else first = key;
  }
  if (first !== undefined) end("\xff".repeat(first.length));
  return found.sort().join(",");
}

/** The key before this one; the result has no meaning for the lowest key. */
function before(key: ByteString): ByteString {
  const bytes = Buffer.from(key, "latin1");
  for (let at = bytes.length - 1; at >= 0; at -= 1) {
    const byte = bytes[at] ?? 0;
    bytes[at] = (byte - 1) & 255;
    if (byte > 0) break;
  }
  return bytes.toString("latin1");
}

/** The prefix of an interval; `undefined` if the interval is not a prefix. */
function cidrBetween(first: ByteString, last: ByteString): Cidr | undefined {
  const [from, to] = [first, last].map((bytes) => IpAddress.fromBytes(Buffer.from(bytes, "latin1")));
  if (from === undefined || to === undefined) return undefined;
  const size = to.value - from.value + 1n;
  const hostBits = size.toString(2).length - 1;
  if (size < 1n || 1n << BigInt(hostBits) !== size || hostBits > from.bits) return undefined;
  const cidr = Cidr.of(from, from.bits - hostBits);
  return cidr.base.equals(from) ? cidr : undefined;
}
