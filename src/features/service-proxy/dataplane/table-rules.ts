import { createHash } from "node:crypto";
import { type NftTable, NftTransaction } from "#kernel/nft";
import type { ElementBatch } from "#kernel/nft-elements";
import {
  AFFINITY_CHAIN,
  affinitySetSpecs,
  baseChains,
  type Chain,
  compileRule,
  isCompiled,
  parseShape,
  printRule,
  type RuleOptions,
  SETS,
  setSpecs,
  shapeChains,
  slotMaps,
} from "../rules/index.ts";
import type { TableOptions } from "./types.ts";

/** A chain of this name says how the table is laid out; a table of another layout is replaced as a whole (docs/spec/service-proxy.md#2.12). */
export const LAYOUT_CHAIN = "isthmus-layout-1";
/** A chain that is made once a table has been filled to the end, with those that packets enter by (docs/spec/service-proxy.md#1.6). */
export const COMPLETE_CHAIN = "isthmus-complete";
/** Begins the name of a chain that says which rules were written, and what the kernel made of them; see {@link sealOf}. */
const SEAL_PREFIX = "isthmus-rules-";
const SEAL_DIGITS = 16;
const TABLE_COMMENT = "Services, by isthmus service-proxy";

/**
 * The table anew, empty but for sets and chains that packets do not meet before {@link hookTable}, in one transaction; its maps of
 * endpoints come with {@link writeSlotMaps}. Pure.
 */
export function replaceTable(
  table: NftTable,
  options: TableOptions,
  { isThere }: { readonly isThere: boolean },
): NftTransaction {
  const tx = new NftTransaction(table);
  // One that was not there a moment ago and is now is another start's, at the same work: it may be all that is in force, and stays.
  if (isThere) tx.removeTable();
  tx.addTable({ comment: TABLE_COMMENT }).chain(LAYOUT_CHAIN);
  for (const [name, spec] of setSpecs(options.family)) tx.set(name, spec);
  const chains = placed(baseChains(options, []), options).filter((chain) => !isEntry(chain));
  for (const { name, base } of chains) tx.chain(name, base).flushChain(name);
  for (const chain of chains) addPrinted(tx, chain, options);
  return tx;
}

/** The chains that packets enter by, and the mark that the table is whole: from here on it is in force. Pure. */
export function hookTable(table: NftTable, options: TableOptions): NftTransaction {
  const tx = new NftTransaction(table);
  const chains = placed(baseChains(options, []), options).filter(isEntry);
  for (const { name, base } of chains) tx.chain(name, base).flushChain(name);
  for (const chain of chains) addPrinted(tx, chain, options);
  return tx.chain(COMPLETE_CHAIN);
}

/** The maps of endpoints, where they are missing. Pure but for the batch. */
export function writeSlotMaps(batch: ElementBatch, { family }: RuleOptions): void {
  for (const [name, { key, value }] of slotMaps(family)) batch.map(name, key, value);
}

/**
 * Missing sets, and every printed chain written again: what a repair needs, whatever somebody did to them, and a start with other
 * options. Chains of somebody's are deleted. What was never whole stays without the chains that packets enter by. Pure.
 */
export function renewTable(
  table: NftTable,
  options: TableOptions,
  known: {
    readonly chains: Iterable<string>;
    readonly affinityTimeouts: readonly number[];
    readonly isWhole: boolean;
  },
): NftTransaction {
  // Adding a table that is there wakes it, where somebody made it dormant.
  const tx = new NftTransaction(table).addTable().chain(LAYOUT_CHAIN);
  for (const [name, spec] of setSpecs(options.family)) tx.set(name, spec);
  addAffinitySets(tx, known.affinityTimeouts, options);
  const shapes = shapesOf(known.chains, options);
  const base = placed(baseChains(options, known.affinityTimeouts), options);
  const chains = [...base.filter((chain) => known.isWhole || !isEntry(chain)), ...shapes];
  const unowned = unownedChains(known.chains, options);
  for (const name of unowned) tx.flushChain(name);
  for (const name of unowned) tx.deleteChain(name);
  for (const chain of chains) tx.chain(chain.name, chain.base);
  const printed = chains.filter((chain) => !isCompiled(chain));
  for (const { name } of printed) tx.flushChain(name);
  for (const chain of printed) addPrinted(tx, chain, options);
  return tx;
}

/**
 * The name of a chain that seals what a table is but for its elements: a digest of all rules, sets and hooks that are wanted where it has
 * these chains, and of the handles that the kernel has given them. A table that bears it needs nothing written: whatever anybody does to a rule, a
 * chain or a set, or to what we would write, gives another name. `structure`: see `NftElements`. Pure.
 */
export function sealOf(
  options: TableOptions,
  known: {
    readonly chains: Iterable<string>;
    readonly affinityTimeouts: readonly number[];
    readonly structure: readonly string[];
  },
): string {
  const chains = [
    ...placed(baseChains(options, known.affinityTimeouts), options),
    ...shapesOf([...known.chains].sort(), options),
  ];
  const sets = known.affinityTimeouts.map((seconds) => [...affinitySetSpecs(options.family, seconds)]);
  const wanted = {
    sets: [...setSpecs(options.family), ...slotMaps(options.family), ...sets],
    chains: chains.map((chain) => {
      const { name, base, rules } = chain;
      const isSteps = isCompiled(chain);
      return [
        name,
        base,
        rules.map((rule) => (isSteps ? compileRule(rule, options.family) : printRule(rule, options))),
      ];
    }),
    structure: known.structure.filter((line) => !line.startsWith(`chain ${SEAL_PREFIX}`)),
  };
  const digest = createHash("sha256").update(JSON.stringify(wanted)).digest("hex");
  return `${SEAL_PREFIX}${digest.slice(0, SEAL_DIGITS)}`;
}

/** This seal instead of those that are there. Pure. */
export function sealTable(table: NftTable, seal: string, chains: Iterable<string>): NftTransaction {
  const tx = new NftTransaction(table).chain(seal);
  for (const name of chains) if (isSeal(name) && name !== seal) tx.flushChain(name).deleteChain(name);
  return tx;
}

/** Whether a chain is one that {@link sealOf} names. */
export function isSeal(name: string): boolean {
  return name.startsWith(SEAL_PREFIX);
}

/** Chains that we never make: packets may enter by them. Pure. */
function unownedChains(names: Iterable<string>, options: TableOptions): readonly string[] {
  const ours = new Set([LAYOUT_CHAIN, COMPLETE_CHAIN, ...baseChains(options, []).map(({ name }) => name)]);
  return [...names].filter((name) => !ours.has(name) && parseShape(name) === undefined);
}

/** The chains of some shapes, without those known already. Pure. */
export function shapesOf(
  names: Iterable<string>,
  options: RuleOptions,
  known: ReadonlySet<string> = new Set(),
): readonly Chain[] {
  const chains = new Map<string, Chain>();
  for (const name of names) {
    const shape = parseShape(name);
    if (shape === undefined) continue;
    for (const chain of shapeChains(shape, options)) if (!known.has(chain.name)) chains.set(chain.name, chain);
  }
  return [...chains.values()];
}

/** Makes chains, with their rules where those are text. Pure. */
export function addChains(table: NftTable, chains: readonly Chain[], options: RuleOptions): NftTransaction {
  const tx = new NftTransaction(table);
  for (const { name } of chains) tx.chain(name);
  for (const chain of chains) addPrinted(tx, chain, options);
  return tx;
}

/** Only the chains, so that both kinds can lead to each other. Pure. */
export function emptyChains(table: NftTable, chains: readonly Chain[]): NftTransaction {
  const tx = new NftTransaction(table);
  for (const { name } of chains) tx.chain(name);
  return tx;
}

/** Writes compiled chains, whatever was in them. Pure but for the batch. */
export function writeCompiled(batch: ElementBatch, chains: readonly Chain[], { family }: RuleOptions): void {
  for (const chain of chains) {
    if (!isCompiled(chain)) continue;
    batch.emptyChain(chain.name);
    for (const rule of chain.rules) batch.rule(chain.name, compileRule(rule, family));
  }
}

/** The sets of affinity timeouts. Pure. */
export function affinitySets(table: NftTable, timeouts: readonly number[], options: RuleOptions): NftTransaction {
  const tx = new NftTransaction(table);
  addAffinitySets(tx, timeouts, options);
  return tx;
}

/** The ranges of the Services' addresses, replaced as a whole: an interval set, of which there are few elements. Pure. */
export function setServiceCidrs(table: NftTable, cidrs: readonly string[]): NftTransaction {
  const tx = new NftTransaction(table).flushSet(SETS.serviceCidrs);
  return tx.elements(
    SETS.serviceCidrs,
    cidrs.map((cidr) => ({ key: [cidr] })),
  );
}

/** Away with all of it. Pure. */
export function removeTable(table: NftTable): NftTransaction {
  return new NftTransaction(table).removeTable();
}

/** A chain that leads packets into the table. That which remembers clients changes no packet's way, and may be hooked at once. */
function isEntry({ name, base }: Chain): boolean {
  return base !== undefined && name !== AFFINITY_CHAIN;
}

/** At the priorities of this table. Pure. */
function placed(chains: readonly Chain[], { priorityOffset = 0 }: TableOptions): readonly Chain[] {
  return chains.map((chain) => {
    const { base } = chain;
    if (base === undefined || typeof base.priority !== "number") return chain;
    return { ...chain, base: { ...base, priority: base.priority + priorityOffset } };
  });
}

function addAffinitySets(tx: NftTransaction, timeouts: readonly number[], { family }: RuleOptions): void {
  for (const seconds of timeouts) for (const [name, spec] of affinitySetSpecs(family, seconds)) tx.set(name, spec);
}

function addPrinted(tx: NftTransaction, chain: Chain, options: RuleOptions): void {
  if (isCompiled(chain)) return;
  for (const rule of chain.rules) tx.rule(chain.name, printRule(rule, options));
}
