import type { Holding } from "#base/estate";
import { GUARD_FAMILIES, GUARD_TABLE, SEAL } from "./rules.ts";

/** The tables of the guard. */
export const GUARD_ESTATE: readonly Holding[] = [
  {
    claims: GUARD_FAMILIES.map((family) => ({
      ...{ id: `guard-${family}`, kind: "nft-table", family, name: GUARD_TABLE },
      chain: `${SEAL}<digest of the rules>`,
    })),
    what: "which sources the packets of a pod's link may have",
  },
];
