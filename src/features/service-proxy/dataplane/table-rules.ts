import { createHash } from "node:crypto";
import { type NftTable, NftTransaction } from "#kernel/nft";
import type { ElementBatch } from "#kernel/nft-elements";
import {
  AFFINITY_CHAINS,
  affinityChains,
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

/** This chain marks the layout of the table. A table of another layout is replaced (docs/spec/service-proxy.md#2.12). */
export const LAYOUT_CHAIN = "isthmus-layout-1";
/**
 * This chain marks a table that was filled completely. It is made with the chains that packets enter by (docs/spec/service-proxy.md#1.6).
 */
export const COMPLETE_CHAIN = "isthmus-complete";
/** Prefix of the seal: a chain whose name is a digest of the rules and their handles; see {@link sealOf}. */
const SEAL_PREFIX = "isthmus-rules-";
const SEAL_DIGITS = 16;
const TABLE_COMMENT = "Services, by isthmus service-proxy";

/**
 * Makes the table again, in one transaction: sets, and chains that packets do not enter before {@link hookTable}. {@link writeSlotMaps}
 * makes the maps of endpoints. Pure.
 */
export function replaceTable(
  table: NftTable,
  options: TableOptions,
  { isThere }: { readonly isThere: boolean },
): NftTransaction {
  const tx = new NftTransaction(table);
  // A table that has appeared since the check belongs to another starting proxy. That table may be the only one in force, so it is not
  // removed.
  if (isThere) tx.removeTable();
  tx.addTable({ comment: TABLE_COMMENT }).chain(LAYOUT_CHAIN);
  for (const [name, spec] of setSpecs(options.family, options.affinityEntries)) tx.set(name, spec);
  const chains = placed(baseChains(options, []), options).filter((chain) => !isEntry(chain));
  for (const { name, base } of chains) tx.chain(name, base).flushChain(name);
  for (const chain of chains) addPrinted(tx, chain, options);
  return tx;
}

/** Makes the chains that packets enter by, and the mark of a complete table: it is then in force. Pure. */
export function hookTable(table: NftTable, options: TableOptions): NftTransaction {
  const tx = new NftTransaction(table);
  const chains = placed(baseChains(options, []), options).filter(isEntry);
  for (const { name, base } of chains) tx.chain(name, base).flushChain(name);
  for (const chain of chains) addPrinted(tx, chain, options);
  return tx.chain(COMPLETE_CHAIN);
}

/** Makes the maps of endpoints that are missing. Pure but for the batch. */
export function writeSlotMaps(batch: ElementBatch, { family }: RuleOptions): void {
  for (const [name, { key, value }] of slotMaps(family)) batch.map(name, key, value);
}

/**
 * Makes missing sets, writes every printed chain again and deletes unowned chains: for a repair, and for a start with other options. A
 * table that was never complete does not get the chains that packets enter by. Pure.
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
  // Adding a table that exists clears its dormant flag.
  const tx = new NftTransaction(table).addTable().chain(LAYOUT_CHAIN);
  for (const [name, spec] of setSpecs(options.family, options.affinityEntries)) tx.set(name, spec);
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
 * Name of the chain that seals a table: a digest of the planned rules, sets and hooks, and of the handles that the kernel gave them. If
 * a table has a chain of this name, its rules need not be written: any change to a rule, a chain, a set or the plan gives another name.
 * `structure`: see `NftElements`. Pure.
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
    sets: [...setSpecs(options.family, options.affinityEntries), ...slotMaps(options.family), ...sets],
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

/**
 * Returns true if the kernel has as many rules in each chain as we write into it, given handles as `NftElements.ruleHandles` lists them. If not,
 * another program changed the rules after we wrote them. Pure.
 */
export function hasAllRules(
  options: TableOptions,
  known: { readonly chains: ReadonlySet<string>; readonly affinityTimeouts: readonly number[] },
  handles: readonly string[],
): boolean {
  const counts = new Map<string, number>();
  for (const line of handles) {
    const chain = line.slice(0, line.lastIndexOf(" "));
    counts.set(chain, (counts.get(chain) ?? 0) + 1);
  }
  const chains = [...baseChains(options, known.affinityTimeouts), ...shapesOf(known.chains, options)];
  const written = chains.filter(({ name, rules }) => known.chains.has(name) && rules.length > 0);
  return (
    written.every(({ name, rules }) => counts.get(name) === rules.length) &&
    [...counts.keys()].every((name) => written.some((chain) => chain.name === name))
  );
}

/** Makes this seal and deletes the others. Pure. */
export function sealTable(table: NftTable, seal: string, chains: Iterable<string>): NftTransaction {
  const tx = new NftTransaction(table).chain(seal);
  for (const name of chains) if (isSeal(name) && name !== seal) tx.flushChain(name).deleteChain(name);
  return tx;
}

/** True if the chain is a seal; see {@link sealOf}. */
export function isSeal(name: string): boolean {
  return name.startsWith(SEAL_PREFIX);
}

/** Chains that we never make. Packets may enter the table by these chains. Pure. */
function unownedChains(names: Iterable<string>, options: TableOptions): readonly string[] {
  const ours = new Set([LAYOUT_CHAIN, COMPLETE_CHAIN, ...baseChains(options, []).map(({ name }) => name)]);
  return [...names].filter((name) => !ours.has(name) && parseShape(name) === undefined);
}

/** The chains of these shapes, without the known ones. Pure. */
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

/** Deletes chains that no verdict and no other chain leads to. They may lead to each other. Pure. */
export function deleteChains(table: NftTable, names: readonly string[]): NftTransaction {
  const tx = new NftTransaction(table);
  for (const name of names) tx.flushChain(name);
  for (const name of names) tx.deleteChain(name);
  return tx;
}

/** Makes chains, with their rules if these are printed. Pure. */
export function addChains(table: NftTable, chains: readonly Chain[], options: RuleOptions): NftTransaction {
  const tx = new NftTransaction(table);
  for (const { name } of chains) tx.chain(name);
  for (const chain of chains) addPrinted(tx, chain, options);
  return tx;
}

/** Makes chains without rules, so that printed and compiled chains can refer to each other. Pure. */
export function emptyChains(table: NftTable, chains: readonly Chain[]): NftTransaction {
  const tx = new NftTransaction(table);
  for (const { name } of chains) tx.chain(name);
  return tx;
}

/** Replaces the rules of compiled chains. Pure but for the batch. */
export function writeCompiled(batch: ElementBatch, chains: readonly Chain[], { family }: RuleOptions): void {
  for (const chain of chains) {
    if (!isCompiled(chain)) continue;
    batch.emptyChain(chain.name);
    for (const rule of chain.rules) batch.rule(chain.name, compileRule(rule, family));
  }
}

/** Replaces the rules that record affinity. Without a timeout there are none. Pure but for the batch. */
export function writeAffinityChains(batch: ElementBatch, timeouts: readonly number[], { family }: RuleOptions): void {
  for (const { name, rules } of affinityChains(timeouts)) {
    batch.emptyChain(name);
    for (const rule of rules) batch.rule(name, compileRule(rule, family));
  }
}

/** Deletes the sets of these affinity timeouts, which no rule may use any more. Pure. */
export function deleteAffinitySets(table: NftTable, timeouts: readonly number[], options: RuleOptions): NftTransaction {
  const tx = new NftTransaction(table);
  for (const seconds of timeouts)
    for (const name of affinitySetSpecs(options.family, seconds).keys()) tx.deleteSet(name);
  return tx;
}

/** Makes the sets of these affinity timeouts. Pure. */
export function affinitySets(table: NftTable, timeouts: readonly number[], options: RuleOptions): NftTransaction {
  const tx = new NftTransaction(table);
  addAffinitySets(tx, timeouts, options);
  return tx;
}

/** Replaces the ServiceCIDRs as a whole: an interval set of few elements. Pure. */
export function setServiceCidrs(table: NftTable, cidrs: readonly string[]): NftTransaction {
  const tx = new NftTransaction(table).flushSet(SETS.serviceCidrs);
  return tx.elements(
    SETS.serviceCidrs,
    cidrs.map((cidr) => ({ key: [cidr] })),
  );
}

/** Removes the table. Pure. */
export function removeTable(table: NftTable): NftTransaction {
  return new NftTransaction(table).removeTable();
}

/** True for a chain that packets enter the table by. False for the affinity chains: they change no packet, so they may be hooked at once. */
function isEntry({ name, base }: Chain): boolean {
  return base !== undefined && !AFFINITY_CHAINS.includes(name);
}

/** The chains at this table's priorities. Pure. */
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
