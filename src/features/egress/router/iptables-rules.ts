import { execFile } from "node:child_process";
import { ExpectedError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { commentOf, diffComments, isOurComment, KINDS, PLACES, type RouterRule, type RuleBackend } from "./rules.ts";

/** `missing`: there is no iptables. `refused`: it ended with an error, which the message has. */
export type IptablesErrorCode = "missing" | "refused";

/** iptables could not do what it was asked for. */
export class IptablesError extends ExpectedError<IptablesErrorCode> {
  override readonly name = "IptablesError";
}

/** Runs a command, and returns its standard output. Throws {@link IptablesError}. */
export type RunCommand = (command: string, args: readonly string[]) => Promise<string>;

const COMMAND = { 4: "iptables", 6: "ip6tables" } as const;
/** Seconds that iptables waits for another program's lock. */
const LOCK_SECONDS = 5;
const COMMAND_MS = 15_000;

/** A router's rules in iptables, whichever variant the system has. */
export function iptablesRules(run: RunCommand = runCommand): RuleBackend {
  const table = (family: IpFamily, kind: RouterRule["kind"], ...args: readonly string[]): Promise<string> =>
    run(COMMAND[family], ["-w", String(LOCK_SECONDS), "-t", PLACES[kind].table, ...args]);
  return {
    sync: async (wanted) => {
      let changes = 0;
      for (const family of [4, 6] as const) {
        for (const kind of KINDS) {
          const { chain } = PLACES[kind];
          const rules = wanted.filter((rule) => rule.family === family && rule.kind === kind);
          const { missing, stale } = diffComments(rules, parseRules(await table(family, kind, "-S", chain)));
          for (const rule of missing) await table(family, kind, "-A", chain, ...wordsOf(rule));
          // By number, from the last: so the numbers of the others stay right. New rules are behind them.
          for (const { number } of stale.toSorted((a, b) => b.number - a.number))
            await table(family, kind, "-D", chain, String(number));
          changes += missing.length + stale.length;
        }
      }
      return changes;
    },
    counters: async () => {
      const found = [];
      for (const family of [4, 6] as const) {
        for (const kind of KINDS) {
          const listing = await table(family, kind, "-nvxL", PLACES[kind].chain);
          found.push(...parseCounters(listing).map((counter) => ({ family, kind, ...counter })));
        }
      }
      return found;
    },
  };
}

function wordsOf(rule: RouterRule): string[] {
  const comment = ["-m", "comment", "--comment", commentOf(rule)];
  if (rule.kind === "invalid")
    return ["-o", rule.ifname, "-m", "conntrack", "--ctstate", "INVALID", ...comment, "-j", "DROP"];
  const host = `${rule.address}/${rule.family === 4 ? 32 : 128}`;
  return ["!", "-s", host, "-o", rule.ifname, ...comment, "-j", "MASQUERADE"];
}

/** Our rules of `iptables -S CHAIN`, with their numbers in the chain, from 1. */
export function parseRules(listing: string): { readonly comment: string; readonly number: number }[] {
  const rules = listing.split("\n").filter((line) => line.startsWith("-A "));
  return rules.flatMap((line, at) => {
    const comment = /--comment "([^"]*)"/.exec(line)?.[1];
    return comment !== undefined && isOurComment(comment) ? [{ comment, number: at + 1 }] : [];
  });
}

/** The counters of our rules in `iptables -nvxL CHAIN`. */
export function parseCounters(listing: string): { readonly packets: number; readonly bytes: number }[] {
  return listing.split("\n").flatMap((line) => {
    const found = /^\s*(\d+)\s+(\d+)\s.*\/\* ([^*]*) \*\//.exec(line);
    if (found === null || !isOurComment(found[3])) return [];
    return [{ packets: Number(found[1]), bytes: Number(found[2]) }];
  });
}

function runCommand(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(command, [...args], { timeout: COMMAND_MS, encoding: "utf8" }, (error, stdout, stderr) => {
      if (error === null) return resolve(stdout);
      const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
      const text = isMissing
        ? `there is no ${command}: install iptables, or choose --backend=nftables`
        : `${command} ${args.join(" ")}: ${stderr.trim() === "" ? error.message : stderr.trim()}`;
      reject(new IptablesError(isMissing ? "missing" : "refused", text, { cause: error }));
    });
  });
}
