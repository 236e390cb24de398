import type { Holding } from "#base/estate";
import { COMMENT } from "./plan.ts";

/** The rules of iptables. */
export const FORWARD_ESTATE: readonly Holding[] = [
  {
    claims: [{ id: "forward", kind: "comments", chain: "FORWARD", comment: COMMENT }],
    what: "rules of iptables by which packets of pods pass where others drop what they do not know",
  },
];
