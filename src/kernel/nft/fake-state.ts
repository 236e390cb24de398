import type { NftBase, NftElement, NftRule, NftSetSpec, NftTable } from "./types.ts";

/** A chain in the fake. */
export interface FakeChain {
  readonly name: string;
  readonly base: NftBase | undefined;
  readonly comment: string | undefined;
  rules: readonly NftRule[];
}

/** A set or map in the fake; elements by their key as text. */
export interface FakeSet {
  readonly name: string;
  readonly spec: NftSetSpec;
  readonly elements: Map<string, NftElement>;
}

/** A table in the fake. */
export interface FakeTable {
  readonly table: NftTable;
  readonly comment: string | undefined;
  readonly chains: Map<string, FakeChain>;
  readonly sets: Map<string, FakeSet>;
  nextHandle: number;
}

/** Tables by family and name. */
export type FakeTables = Map<string, FakeTable>;

/** A copy to change: a refused transaction leaves the original as it was. */
export function cloneTables(tables: FakeTables): FakeTables {
  return new Map(
    Array.from(tables, ([key, table]): [string, FakeTable] => [
      key,
      {
        ...table,
        chains: new Map(Array.from(table.chains, ([name, chain]): [string, FakeChain] => [name, { ...chain }])),
        sets: new Map(
          Array.from(table.sets, ([name, set]): [string, FakeSet] => [
            name,
            { ...set, elements: new Map(set.elements) },
          ]),
        ),
      },
    ]),
  );
}

/** True if a rule or a verdict in a map refers to the chain, or if a rule uses the set. */
export function references(table: FakeTable, what: { readonly chain: string } | { readonly set: string }): boolean {
  const name = "chain" in what ? what.chain : what.set;
  const escaped = name.replace(/[.]/g, "\\.");
  const pattern = new RegExp("chain" in what ? `\\b(jump|goto) ${escaped}(?![\\w/.-])` : `@${escaped}(?![\\w/.-])`);
  for (const chain of table.chains.values()) {
    if (chain.name !== name || "set" in what) if (chain.rules.some(({ rule }) => pattern.test(rule))) return true;
  }
  for (const set of table.sets.values()) {
    for (const { value } of set.elements.values())
      if (value !== undefined && pattern.test(value.join(" "))) return true;
  }
  return false;
}
