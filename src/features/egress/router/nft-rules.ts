import { type Nft, type NftBase, NftError, NftTransaction } from "#kernel/nft";
import { commentOf, diffComments, isOurComment, KINDS, PLACES, type RouterRule, type RuleBackend } from "./rules.ts";

const BASES: Readonly<Record<RouterRule["kind"], NftBase>> = {
  masquerade: { type: "nat", hook: "postrouting", priority: "srcnat" },
  invalid: { type: "filter", hook: "forward", priority: "filter" },
};
const TABLE_FAMILY = { 4: "ip", 6: "ip6" } as const;
const PLACES_OF_FAMILIES = ([4, 6] as const).flatMap((family) => KINDS.map((kind) => ({ family, kind })));

type Place = (typeof PLACES_OF_FAMILIES)[number];

/** A router's rules in nftables. One transaction for each table. */
export function nftRules(nft: Nft): RuleBackend {
  return {
    sync: async (wanted) => PLACES_OF_FAMILIES.reduce((sum, place) => sum + syncPlace(nft, place, wanted), 0),
    counters: async () =>
      PLACES_OF_FAMILIES.flatMap((place) =>
        present(() => nft.listCounters(tableOf(place), PLACES[place.kind].chain))
          .filter(({ comment }) => isOurComment(comment))
          .map(({ packets, bytes }) => ({ ...place, packets, bytes })),
      ),
  };
}

function syncPlace(nft: Nft, place: Place, all: readonly RouterRule[]): number {
  const { chain } = PLACES[place.kind];
  const wanted = all.filter(({ family, kind }) => family === place.family && kind === place.kind);
  const ours = present(() => nft.listRules(tableOf(place), chain)).flatMap(({ comment = "", handle }) =>
    isOurComment(comment) ? [{ comment, handle }] : [],
  );
  const { missing, stale } = diffComments(wanted, ours);
  if (missing.length + stale.length === 0) return 0;
  const table = tableOf(place);
  const transaction = new NftTransaction(table).addTable().chain(chain, BASES[place.kind]);
  for (const rule of missing) transaction.rule(chain, textOf(rule), { comment: commentOf(rule) });
  const remove = stale.map(({ handle }) => ({ op: "delete", kind: "rule", table, chain, handle }) as const);
  nft.run([...transaction, ...remove]);
  return missing.length + stale.length;
}

function tableOf({ family, kind }: Place) {
  return { family: TABLE_FAMILY[family], name: PLACES[kind].table };
}

function textOf({ family, kind, address, ifname }: RouterRule): string {
  if (kind === "invalid") return `oifname "${ifname}" ct state invalid counter drop`;
  return `${TABLE_FAMILY[family]} saddr != ${address} oifname "${ifname}" counter masquerade`;
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
