import { Cidr, IpAddress } from "#base/ip";

/** The annotation of a Pod with what it wants to use as source besides its addresses. */
export const EXTRA_SOURCES = "isthmus.dev/extra-sources";
/** The annotation of a Namespace with what its pods may use. */
export const ALLOWED_SOURCES = "isthmus.dev/allowed-sources";
/** The largest number of entries of one annotation: each costs elements of the kernel. */
export const MAX_ENTRIES = 32;
const ANY = [Cidr.parse("0.0.0.0/0"), Cidr.parse("::/0")] as const;

/** The sources that a pod may use besides its addresses, and those that it is refused. */
export interface SourceRequest {
  readonly granted: readonly Cidr[];
  /** The reason why entries do not count, one line each; empty: all do. */
  readonly refused: readonly string[];
}

/**
 * Pure: the sources that a pod asks for, as far as its Namespace allows them (docs/spec/pod-network.md#5.7). `any` of a pod is all that the Namespace allows; an
 * entry that is allowed in part counts in that part, and the rest is refused. An entry of the Namespace that cannot be read allows nothing.
 */
export function allowedSources(asked: string | undefined, allowed: string | undefined): SourceRequest {
  if (asked === undefined) return { granted: [], refused: [] };
  const { ranges: limits, faults: unreadable } = parseSources(allowed ?? "", ALLOWED_SOURCES);
  const { ranges, faults, isAny } = parseSources(asked, EXTRA_SOURCES);
  const granted: Cidr[] = [];
  const refused = [...faults, ...(asked.trim() === "" ? [] : unreadable)];
  if (isAny && limits.length === 0) refused.push(`any: ${ALLOWED_SOURCES} of the Namespace allows nothing`);
  for (const range of isAny ? ANY : ranges) {
    const common = limits.flatMap((limit) => commonPart(range, limit));
    granted.push(...common);
    if (!isAny && !limits.some((limit) => limit.contains(range)))
      refused.push(
        `${range}: ${ALLOWED_SOURCES} of the Namespace allows ${common.length === 0 ? "nothing" : "only a part"} of it`,
      );
  }
  return { granted: [...new Map(granted.map((one) => [String(one), one] as const)).values()], refused };
}

/** The common part of two ranges, which is one of them or nothing. */
function commonPart(a: Cidr, b: Cidr): readonly Cidr[] {
  return a.family !== b.family ? [] : a.contains(b) ? [b] : b.contains(a) ? [a] : [];
}

function parseSources(
  text: string,
  annotation: string,
): { readonly ranges: readonly Cidr[]; readonly faults: readonly string[]; readonly isAny: boolean } {
  const entries = text.split(/[\s,]+/).filter((entry) => entry !== "");
  if (entries.length > MAX_ENTRIES)
    return {
      ranges: [],
      faults: [`${annotation} has ${entries.length} entries; at most ${MAX_ENTRIES} are read`],
      isAny: false,
    };
  const ranges: Cidr[] = [];
  const faults: string[] = [];
  for (const entry of entries) {
    if (entry === "any") ranges.push(...ANY);
    else {
      const address = IpAddress.tryParse(entry);
      const range = address === undefined ? Cidr.tryParse(entry) : Cidr.host(address);
      if (range === undefined)
        faults.push(`${JSON.stringify(entry.slice(0, 64))} of ${annotation} is no address, no range and not "any"`);
      else ranges.push(range);
    }
  }
  return { ranges, faults, isAny: entries.includes("any") };
}
