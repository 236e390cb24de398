import type { AbortOptions } from "#base/async";
import { isKernelError } from "#kernel/errors";
import { type ByteString, ElementBatch, type ElementTable, type NftElements } from "#kernel/nft-elements";
import type { HeldFrontEnd } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import type { Ledger } from "./ledger.ts";

/** Endpoints that a front end with affinity has no more: clients that are remembered for them must choose anew. */
export interface AffinityLoss {
  readonly key: ByteString;
  readonly isNodePort: boolean;
  readonly endpoints: ReadonlySet<ByteString>;
}

/** Protocol and port at the end of a key, bytes. */
const PORT_BYTES = 8;

/** Pure; `undefined` where nobody has to be forgotten. */
export function affinityLoss(
  before: HeldFrontEnd | undefined,
  after: HeldFrontEnd | undefined,
): AffinityLoss | undefined {
  if (before === undefined || before.affinitySeconds === 0) return undefined;
  const kept =
    after?.affinitySeconds === 0 ? new Set() : new Set([...(after?.slots ?? []), ...(after?.localSlots ?? [])]);
  const lost = [...before.slots, ...before.localSlots].filter((one) => one !== undefined && !kept.has(one));
  if (lost.length === 0) return undefined;
  return { key: before.key, isNodePort: before.isNodePort, endpoints: new Set(lost as readonly ByteString[]) };
}

/**
 * Deletes what packets have remembered of lost endpoints. The map is listed once, only where there is a loss. An entry that expires
 * meanwhile is no fault. Rejects with `KernelError`.
 */
export async function forgetClients(
  { elements, ledger }: { readonly elements: NftElements; readonly ledger: Ledger },
  table: ElementTable,
  losses: readonly AffinityLoss[],
  options: AbortOptions,
): Promise<number> {
  if (losses.length === 0) return 0;
  const byFrontEnd = new Map(losses.map((loss) => [loss.key, loss]));
  const addressBytes = table.family === "ip" ? 4 : 16;
  const stale = elements.list(table, SETS.affinity).filter(({ key, value }) => {
    const loss = byFrontEnd.get(key.slice(addressBytes)) ?? byFrontEnd.get(key.slice(-PORT_BYTES));
    return typeof value === "string" && loss?.endpoints.has(value) === true;
  });
  for (const { key } of stale) {
    const batch = new ElementBatch(table, { record: elements.wantsRecords }).delete(SETS.affinity, key);
    try {
      await ledger.transact(() => elements.commit(batch, options));
    } catch (error) {
      if (!isKernelError(error, "not-found")) throw error;
    }
  }
  return stale.length;
}
