import type { NftRule } from "./types.ts";

/** Reads the rules from `nft -a list chain` output: each line that ends in a handle is a rule. */
export function parseRules(listing: string): NftRule[] {
  return listing.split("\n").flatMap((line): NftRule[] => {
    const found = /^\t\t(?<rule>.*\S) # handle (?<handle>\d+)$/.exec(line)?.groups;
    if (found === undefined) return [];
    const { rule = "", handle = "" } = found;
    const commented = /^(?<before>.*) comment "(?<comment>[^"]*)"$/.exec(rule)?.groups;
    if (commented === undefined) return [{ rule, handle: Number(handle) }];
    return [{ rule: commented["before"] ?? "", comment: commented["comment"] ?? "", handle: Number(handle) }];
  });
}
