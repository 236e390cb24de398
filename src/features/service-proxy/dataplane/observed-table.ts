import type { ByteString, NftElements, RawElement } from "#kernel/nft-elements";
import { cidrsIn, type ListedTable, type ObservedFrontEnd, readListing, TableTally } from "../plan/index.ts";
import { affinityChains, type RuleOptions, SETS } from "../rules/index.ts";
import { ShapeUses } from "./shape-uses.ts";
import {
  COMPLETE_CHAIN,
  hasAllRules,
  LAYOUT_CHAIN,
  renewTable,
  replaceTable,
  sealOf,
  shapesOf,
  writeCompiled,
  writeSlotMaps,
} from "./table-rules.ts";

import type { TableOptions } from "./types.ts";
import type { TableWriter } from "./writer.ts";

/** The known content of a table in the kernel. */
export interface ObservedTable {
  readonly frontEnds: Map<string, ObservedFrontEnd>;
  chains: Set<string>;
  /** Which of the chains the front ends need. */
  readonly uses: ShapeUses;
  readonly tally: TableTally;
  /** The rules, as `NftElements.ruleHandles` lists them; `undefined` if another program changed the rules after we wrote them. */
  rules: readonly string[] | undefined;
  readonly sets: Map<string, Set<ByteString>>;
  affinityTimeouts: readonly number[];
  /** Ranges as text, sorted and joined. */
  serviceCIDRs: string;
  /** Elements in the kernel that no plan makes. */
  unowned: ListedTable["unowned"];
}

/** Sets of keys without values, which are planned as a whole. */
export const PLAIN_SETS = [SETS.clusterIps, SETS.hairpin, SETS.nodePortIps] as const;

/**
 * - `absent`: no table, or one without chains
 * - `foreign`: a table of another program, or of another layout
 * - `partial`: ours, never filled completely; packets do not pass through it
 * - `whole`: ours, filled completely once
 */
export type TableState = "absent" | "foreign" | "partial" | "whole";

/** Finds the state of a table from the names of its chains. `names` is `undefined` if there is no table. Pure. */
export function stateOf(names: { readonly chains: readonly string[] } | undefined): TableState {
  if (names === undefined || names.chains.length === 0) return "absent";
  if (!names.chains.includes(LAYOUT_CHAIN)) return "foreign";
  return names.chains.includes(COMPLETE_CHAIN) ? "whole" : "partial";
}

/** Returns true if a table is ours, also one of another run or unfinished, by its chain. Pure; `names` as in {@link stateOf}. */
export function isOwnTable(names: { readonly chains: readonly string[] } | undefined): boolean {
  return ["partial", "whole"].includes(stateOf(names));
}

/**
 * Adopts one of our tables that an earlier run left, and that other programs may have changed since: lists its elements, and writes its
 * rules again unless its seal shows that they are right. If `state` says that the table is not ours, deletes the table of this name and
 * makes a new one.
 */
export async function adopt(
  writer: TableWriter,
  elements: Pick<NftElements, "names" | "list" | "listInSlices" | "generation" | "structure" | "ruleHandles">,
  options: TableOptions,
  state: TableState,
): Promise<ObservedTable> {
  const { table } = writer;
  const names = elements.names(table);
  if (names === undefined || state === "absent" || state === "foreign") {
    await writer.run(replaceTable(table, options, { isThere: names !== undefined }));
    await writer.commitRules((batch) => writeSlotMaps(batch, options));
    return emptyTable(new Set(elements.names(table)?.chains));
  }
  const affinityTimeouts = timeoutsOf(names.sets);
  const known = { chains: names.chains, affinityTimeouts };
  const structure = elements.structure(table);
  const isSealed = state === "whole" && names.chains.includes(sealOf(options, { ...known, structure }));
  if (!isSealed) {
    await writer.commitRules((batch) => writeSlotMaps(batch, options));
    await writer.run(renewTable(table, options, { ...known, isWhole: state === "whole" }));
    await writer.commitRules((batch) =>
      writeCompiled(batch, compiledOf(names.chains, affinityTimeouts, options), options),
    );
  }
  // Chains and rules are read before the elements: a change by another program while elements are listed must count as damage.
  const chains = new Set(isSealed ? names.chains : elements.names(table)?.chains);
  const rules = isSealed ? rulesIn(structure) : rulesOf(elements, { table, options, chains, affinityTimeouts });
  const listing = await listElements(writer, elements);
  const { frontEnds, unowned } = readListing(listing);
  return {
    frontEnds: new Map(frontEnds),
    chains,
    uses: new ShapeUses(frontEnds.values()),
    tally: new TableTally(frontEnds.values()),
    rules,
    sets: new Map(PLAIN_SETS.map((name) => [name, new Set((listing.get(name) ?? []).map(({ key }) => key))])),
    affinityTimeouts,
    serviceCIDRs: cidrsIn(elements.list(table, SETS.serviceCidrs)),
    unowned,
  };
}

/** The handles of the rules that we have just written; `undefined` if the kernel already has other rules. */
export function rulesOf(
  elements: Pick<NftElements, "ruleHandles">,
  known: {
    readonly table: TableWriter["table"];
    readonly options: TableOptions;
    readonly chains: ReadonlySet<string>;
    readonly affinityTimeouts: readonly number[];
  },
): readonly string[] | undefined {
  const handles = elements.ruleHandles(known.table);
  return hasAllRules(known.options, known, handles) ? handles : undefined;
}

/** Pure: the handles of the rules in what `NftElements.structure` lists. */
function rulesIn(structure: readonly string[]): readonly string[] {
  const prefix = "rule ";
  return structure.filter((line) => line.startsWith(prefix)).map((line) => line.slice(prefix.length));
}

function compiledOf(chains: Iterable<string>, affinityTimeouts: readonly number[], options: RuleOptions) {
  return [...affinityChains(affinityTimeouts), ...shapesOf(chains, options)];
}

/** Lists the elements in slices. If any table changed during the listing, lists the elements again without a pause. */
async function listElements(
  { table, options }: TableWriter,
  elements: Pick<NftElements, "names" | "list" | "listInSlices" | "generation">,
): Promise<ReadonlyMap<string, readonly RawElement[]>> {
  // The affinity map is left out because packets fill it, and the ServiceCIDRs because they are read as ranges. Anonymous sets (`__`)
  // belong to rules of other programs.
  const isOurs = (name: string): boolean =>
    name !== SETS.affinity && name !== SETS.serviceCidrs && !name.startsWith("__");
  const names = (elements.names(table)?.sets ?? []).filter(isOurs);
  const generation = elements.generation();
  const listing = new Map<string, readonly RawElement[]>();
  for (const name of names) listing.set(name, await elements.listInSlices(table, name, options));
  if (elements.generation() === generation) return listing;
  return new Map(names.map((name) => [name, elements.list(table, name)]));
}

function emptyTable(chains: Set<string>): ObservedTable {
  const sets = new Map(PLAIN_SETS.map((name) => [name, new Set<ByteString>()]));
  return {
    frontEnds: new Map(),
    chains,
    uses: new ShapeUses(),
    tally: new TableTally(),
    rules: [],
    sets,
    affinityTimeouts: [],
    serviceCIDRs: "",
    unowned: [],
  };
}

function timeoutsOf(sets: readonly string[]): number[] {
  const found = sets.flatMap((name) => /^(?:np-)?affinity-(\d{1,5})$/.exec(name)?.[1] ?? []);
  return [...new Set(found.map(Number))].sort((a, b) => a - b);
}
