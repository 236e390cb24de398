import type { ByteString, NftElements, RawElement } from "#kernel/nft-elements";
import { cidrsIn, type ObservedFrontEnd, type ListedTable, readListing } from "../plan/index.ts";
import { affinityChain, type RuleOptions, SETS } from "../rules/index.ts";
import {
  COMPLETE_CHAIN,
  writeCompiled,
  writeSlotMaps,
  LAYOUT_CHAIN,
  renewTable,
  replaceTable,
  sealOf,
  shapesOf,
} from "./table-rules.ts";
import type { TableOptions } from "./types.ts";
import type { TableWriter } from "./writer.ts";

/** What the kernel holds of a table, as far as is known. */
export interface ObservedTable {
  readonly frontEnds: Map<string, ObservedFrontEnd>;
  chains: Set<string>;
  /** The rules, as `NftElements.ruleHandles` has them. */
  rules: readonly string[];
  readonly sets: Map<string, Set<ByteString>>;
  affinityTimeouts: readonly number[];
  /** As text, sorted and joined. */
  serviceCIDRs: string;
  /** Found in the kernel and wanted by nobody. */
  unowned: ListedTable["unowned"];
}

/** Sets whose elements are keys alone, wanted as a whole. */
export const PLAIN_SETS = [SETS.clusterIps, SETS.hairpin, SETS.nodePortIps] as const;

/**
 * - `absent`: nothing is there that packets could meet
 * - `foreign`: somebody else's, or of another layout
 * - `partial`: ours, and was never filled to the end; packets do not meet it
 * - `whole`: ours, and was
 */
export type TableState = "absent" | "foreign" | "partial" | "whole";

/** Pure: of the chains of a table; `undefined`: there is no table. */
export function stateOf(names: { readonly chains: readonly string[] } | undefined): TableState {
  if (names === undefined || names.chains.length === 0) return "absent";
  if (!names.chains.includes(LAYOUT_CHAIN)) return "foreign";
  return names.chains.includes(COMPLETE_CHAIN) ? "whole" : "partial";
}

/**
 * Takes over what an earlier run, or somebody's hands, left of a table of ours: its elements are listed, its rules written again unless
 * its seal says that they are those that would be written.
 * Makes it anew where `state` says that there is none of ours; what then was there under its name is gone.
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
  const seal = sealOf(options, { ...known, structure: elements.structure(table) });
  if (state !== "whole" || !names.chains.includes(seal)) {
    await writer.commitRules((batch) => writeSlotMaps(batch, options));
    await writer.run(renewTable(table, options, { ...known, isWhole: state === "whole" }));
    await writer.commitRules((batch) =>
      writeCompiled(batch, compiledOf(names.chains, affinityTimeouts, options), options),
    );
  }
  const listing = await listElements(writer, elements);
  const { frontEnds, unowned } = readListing(listing);
  return {
    frontEnds: new Map(frontEnds),
    chains: new Set(elements.names(table)?.chains),
    rules: elements.ruleHandles(table),
    sets: new Map(PLAIN_SETS.map((name) => [name, new Set((listing.get(name) ?? []).map(({ key }) => key))])),
    affinityTimeouts,
    serviceCIDRs: cidrsIn(elements.list(table, SETS.serviceCidrs)),
    unowned,
  };
}

function compiledOf(chains: Iterable<string>, affinityTimeouts: readonly number[], options: RuleOptions) {
  return [affinityChain(affinityTimeouts), ...shapesOf(chains, options)];
}

/** In slices; where anything changed meanwhile, at once. */
async function listElements(
  { table, options }: TableWriter,
  elements: Pick<NftElements, "names" | "list" | "listInSlices" | "generation">,
): Promise<ReadonlyMap<string, readonly RawElement[]>> {
  // Clients that are remembered are packets' business; the ranges of Services are read as such. Others' anonymous sets count not.
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
  return { frontEnds: new Map(), chains, rules: [], sets, affinityTimeouts: [], serviceCIDRs: "", unowned: [] };
}

function timeoutsOf(sets: readonly string[]): number[] {
  const found = sets.flatMap((name) => /^affinity-(\d{1,5})$/.exec(name)?.[1] ?? []);
  return found.map(Number).sort((a, b) => a - b);
}
