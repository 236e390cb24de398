import type { Settings } from "#base/uplink-model";
import { type Nft, type NftTable, NftTransaction } from "#kernel/nft";
import { isNftNotFound } from "./nft-errors.ts";

/** A table that only this program uses: it is made, replaced and removed as a whole. */
export const GUARD_TABLE = { family: "inet", name: "uplink_guard" } as const satisfies NftTable;
const CHAIN = "input";

/** One rule: a port that is closed on an uplink. */
interface GuardRule {
  readonly rule: string;
  readonly comment: string;
}

/**
 * Pure: the listeners' ports are closed on each uplink that speaks IP, both families (docs/spec/uplink-proxy.md#4). Rules match
 * interfaces by name, so that a rule can exist before its interface; `lo` and the pods' bridge never match.
 */
export function wantedGuard({ uplinks, listeners }: Settings): readonly GuardRule[] {
  const ports = new Set(listeners.map(({ port }) => port));
  return uplinks
    .filter(({ published }) => published?.isL3 !== false)
    .flatMap(({ interface: ifName }) =>
      [...ports].map((port) => ({
        rule: `iifname "${ifName}" tcp dport ${port} drop`,
        comment: `Block mgmtproxy port on ${ifName}`,
      })),
    );
}

/** Replaces the table in one transaction if it differs; removes it if no port has to be closed. Returns 0 or 1. Throws {@link NftError}. */
export function syncPortGuard(nft: Nft, wanted: readonly GuardRule[]): number {
  const actual = listGuard(nft);
  if (wanted.length === 0) return actual === undefined ? 0 : clearPortGuard(nft);
  if (actual !== undefined && textOf(actual) === textOf(wanted)) return 0;
  const tx = new NftTransaction(GUARD_TABLE).replaceTable();
  tx.chain(CHAIN, { type: "filter", hook: "input", priority: "filter", policy: "accept" });
  for (const { rule, comment } of wanted) tx.rule(CHAIN, rule, { comment });
  nft.run(tx);
  return 1;
}

/** Removes the table if it exists. Returns 0 or 1. Throws {@link NftError}. */
export function clearPortGuard(nft: Nft): number {
  if (listGuard(nft) === undefined) return 0;
  nft.run(new NftTransaction(GUARD_TABLE).removeTable());
  return 1;
}

/** Reads the rules of our table; `undefined` if the table does not exist. */
function listGuard(nft: Nft): readonly GuardRule[] | undefined {
  if (!nft.listTables(GUARD_TABLE.family).some(({ name }) => name === GUARD_TABLE.name)) return undefined;
  try {
    return nft.listRules(GUARD_TABLE, CHAIN).map(({ rule, comment = "" }) => ({ rule, comment }));
  } catch (error) {
    if (isNftNotFound(error)) return [];
    throw error;
  }
}

function textOf(rules: readonly GuardRule[]): string {
  return rules.map(({ rule, comment }) => `${rule} ${comment}`).join("\n");
}
