import type { IpAddress } from "#base/ip";
import type { ByteString, RawElement } from "#kernel/nft-elements";
import { elementsOf, FILLED, type GuardElement, ifindexOf, keysOf } from "./elements.ts";
import { GUARD_FAMILIES, type GuardFamily } from "./rules.ts";
import type { GuardedLink } from "./types.ts";

/** One change of an element, as plain data. */
export interface GuardChange {
  readonly op: "add" | "delete";
  readonly table: GuardFamily;
  readonly set: string;
  readonly key: ByteString;
  readonly keyEnd?: ByteString;
}

/** The elements that the kernel has, by table and set. */
export type ActualElements = Readonly<Record<GuardFamily, ReadonlyMap<string, readonly RawElement[]>>>;

/**
 * Pure: the changes from the kernel's elements to those of `links`. Elements of links in `keep` stay as they are, and so do those of a link whose extra sources
 * are not known: its addresses may not be known as a whole either. Deletions come first: a range that grows overlaps with the one that it replaces.
 */
export function planElements(
  links: readonly GuardedLink[],
  actual: ActualElements,
  keep: ReadonlySet<number> = new Set(),
): GuardChange[] {
  const unknown = new Set(links.filter(({ extra }) => extra === undefined).map(({ ifindex }) => ifindex));
  const wanted = new Map<string, GuardChange>();
  const want = (element: GuardElement): void => {
    const change = changeOf("add", element);
    wanted.set(idOf(change), change);
  };
  for (const link of links) for (const element of elementsOf(link)) want(element);
  const staysWhole = (ifindex: number | undefined): boolean =>
    ifindex !== undefined && (keep.has(ifindex) || unknown.has(ifindex));
  const kept = new Set<string>();
  for (const set of ["pods4", "pods6"] as const)
    for (const { key } of actual.inet.get(set) ?? [])
      if (staysWhole(ifindexOf(set, key))) kept.add(`${set.replace("pods", "own")} ${key.slice(4)}`);
  const stays = (set: string, key: ByteString): boolean =>
    set.startsWith("own") ? kept.has(`${set} ${key}`) : staysWhole(ifindexOf(set, key));
  const deletions: GuardChange[] = [];
  for (const table of GUARD_FAMILIES)
    for (const set of FILLED[table])
      for (const { key, keyEnd } of actual[table].get(set) ?? []) {
        const change = { op: "delete", table, set, key, ...(keyEnd === undefined ? {} : { keyEnd }) } as const;
        if (wanted.delete(idOf(change)) || stays(set, key)) continue;
        deletions.push(change);
      }
  return [...deletions, ...wanted.values()];
}

/** Pure: the changes from one link to what it is to be. `others` are the links whose addresses stay those of pods. */
export function planLink(
  before: GuardedLink | undefined,
  after: GuardedLink | undefined,
  others: readonly GuardedLink[],
): GuardChange[] {
  const shared = (address: IpAddress): boolean => {
    for (const { addresses } of others) if (addresses.some((other) => other.equals(address))) return true;
    return false;
  };
  const old = new Map(
    (before === undefined ? [] : elementsOf(before)).map(
      (element) => [idOf(changeOf("delete", element)), element] as const,
    ),
  );
  const added: GuardChange[] = [];
  for (const element of after === undefined ? [] : elementsOf(after)) {
    const change = changeOf("add", element);
    if (!old.delete(idOf(change))) added.push(change);
  }
  const deleted = [...old.values()].filter(
    ({ ifindex, from }) => ifindex !== undefined || from === undefined || !shared(from),
  );
  return [...deleted.map((element) => changeOf("delete", element)), ...added];
}

function changeOf(op: "add" | "delete", element: GuardElement): GuardChange {
  return { op, table: element.table, set: element.set, ...keysOf(element) };
}

function idOf({ table, set, key, keyEnd }: Omit<GuardChange, "op">): string {
  return `${table} ${set} ${key} ${keyEnd ?? ""}`;
}
