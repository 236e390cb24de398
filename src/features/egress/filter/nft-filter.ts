import { type Nft, NftError, NftTransaction } from "#kernel/nft";
import { cellsOf, diffComments, type FilterBackend, type FilterKinds, type FilterRule } from "./types.ts";

const TABLE_FAMILY = { 4: "ip", 6: "ip6" } as const;

/** nftables. One transaction for each chain. */
export function nftFilter(nft: Nft): FilterBackend {
  return {
    sync: async (kinds, wanted) => cellsOf(kinds).reduce((sum, cell) => sum + syncCell(nft, kinds, cell, wanted), 0),
    list: async (kinds) =>
      cellsOf(kinds).flatMap(({ family, kind, place }) =>
        oursOf(nft, kinds, { family, place }).map(({ comment }) => ({ family, kind, comment })),
      ),
    counters: async (kinds) =>
      cellsOf(kinds).flatMap(({ family, kind, place }) =>
        present(() => nft.listCounters({ family: TABLE_FAMILY[family], name: place.table }, place.chain.nftables))
          .filter(({ comment }) => comment !== undefined && kinds.isOurs(comment))
          .map(({ packets, bytes }) => ({ family, kind, packets, bytes })),
      ),
  };
}

function syncCell<Kind extends string>(
  nft: Nft,
  kinds: FilterKinds<Kind>,
  { family, kind, place }: ReturnType<typeof cellsOf<Kind>>[number],
  all: readonly FilterRule<Kind>[],
): number {
  const chain = place.chain.nftables;
  const table = { family: TABLE_FAMILY[family], name: place.table };
  const wanted = all.filter((rule) => rule.family === family && rule.kind === kind);
  const ours = oursOf(nft, kinds, { family, place });
  const { missing, stale } = diffComments(wanted, ours);
  if (missing.length + stale.length === 0) return 0;
  const transaction = new NftTransaction(table).addTable().chain(chain, place.base);
  for (const { nftables, comment } of missing) transaction.rule(chain, nftables, { comment });
  const remove = stale.map(({ handle }) => ({ op: "delete", kind: "rule", table, chain, handle }) as const);
  nft.run([...transaction, ...remove]);
  return missing.length + stale.length;
}

function oursOf(
  nft: Nft,
  { isOurs }: Pick<FilterKinds<string>, "isOurs">,
  { family, place }: Pick<ReturnType<typeof cellsOf<string>>[number], "family" | "place">,
): { readonly comment: string; readonly handle: number }[] {
  const table = { family: TABLE_FAMILY[family], name: place.table };
  return present(() => nft.listRules(table, place.chain.nftables)).flatMap(({ comment = "", handle }) =>
    isOurs(comment) ? [{ comment, handle }] : [],
  );
}

/** The rules of a chain; of a chain that does not exist, none. */
function present<T>(read: () => T[]): T[] {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof NftError) || error.code !== "not-found") throw error;
    return [];
  }
}
