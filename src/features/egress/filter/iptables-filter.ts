import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { ExpectedError } from "#base/errors";
import { inNetNs } from "#kernel/netns";
import { cellsOf, diffComments, type FilterBackend, type FilterKinds } from "./types.ts";

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

type IsOurs = FilterKinds<string>["isOurs"];

/** iptables, whichever variant the system has. */
export function iptablesFilter(run: RunCommand): FilterBackend {
  const call = (family: 4 | 6, table: string, ...args: readonly string[]): Promise<string> =>
    run(COMMAND[family], ["-w", String(LOCK_SECONDS), "-t", table, ...args]);
  return {
    sync: async (kinds, wanted) => {
      let changes = 0;
      for (const { family, kind, place } of cellsOf(kinds)) {
        const chain = place.chain.iptables;
        const rules = wanted.filter((rule) => rule.family === family && rule.kind === kind);
        const ours = parseRules(await call(family, place.table, "-S", chain), kinds.isOurs);
        const { missing, stale } = diffComments(rules, ours);
        for (const { iptables, comment } of missing)
          await call(family, place.table, "-A", chain, "-m", "comment", "--comment", comment, ...iptables);
        // By number, from the last: so the numbers of the others stay right. New rules are behind them.
        for (const { number } of stale.toSorted((a, b) => b.number - a.number))
          await call(family, place.table, "-D", chain, String(number));
        changes += missing.length + stale.length;
      }
      return changes;
    },
    list: async (kinds) => {
      const found = [];
      for (const { family, kind, place } of cellsOf(kinds)) {
        const listing = await call(family, place.table, "-S", place.chain.iptables);
        found.push(...parseRules(listing, kinds.isOurs).map(({ comment }) => ({ family, kind, comment })));
      }
      return found;
    },
    counters: async (kinds) => {
      const found = [];
      for (const { family, kind, place } of cellsOf(kinds)) {
        const listing = await call(family, place.table, "-nvxL", place.chain.iptables);
        found.push(...parseCounters(listing, kinds.isOurs).map((counter) => ({ family, kind, ...counter })));
      }
      return found;
    },
  };
}

/** Our rules of `iptables -S CHAIN`, with their numbers in the chain, from 1. */
export function parseRules(listing: string, isOurs: IsOurs): { readonly comment: string; readonly number: number }[] {
  const rules = listing.split("\n").filter((line) => line.startsWith("-A "));
  return rules.flatMap((line, at) => {
    // A comment without a space is not quoted.
    const [, quoted, bare] = /--comment (?:"([^"]*)"|(\S+))/.exec(line) ?? [];
    const comment = quoted ?? bare;
    return comment !== undefined && isOurs(comment) ? [{ comment, number: at + 1 }] : [];
  });
}

/** The counters of our rules in `iptables -nvxL CHAIN`. */
export function parseCounters(listing: string, isOurs: IsOurs): { readonly packets: number; readonly bytes: number }[] {
  return listing.split("\n").flatMap((line) => {
    const found = /^\s*(\d+)\s+(\d+)\s.*\/\* ([^*]*) \*\//.exec(line);
    if (found === null || !isOurs(found[3] ?? "")) return [];
    return [{ packets: Number(found[1]), bytes: Number(found[2]) }];
  });
}

/** A {@link RunCommand} in this process's network namespace, or in the one of an open file, which must stay open as long. */
export function commandRunner(netns?: { readonly fd: number }): RunCommand {
  return (command, args) => output(command, args, netns);
}

/** Bytes of output that are kept: a listing of a chain of a thousand rules. */
const MAX_OUTPUT = 1 << 20;

function output(command: string, args: readonly string[], netns?: { readonly fd: number }): Promise<string> {
  return new Promise((resolve, reject) => {
    const begin = (): ChildProcessByStdio<null, Readable, Readable> =>
      spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], timeout: COMMAND_MS });
    // A child starts in the namespace of the thread that makes it. Images of containers need no nsenter for that.
    const child = netns === undefined ? begin() : inNetNs(netns, begin);
    const texts = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const)
      child[name].setEncoding("utf8").on("data", (text: string) => {
        if (texts[name].length < MAX_OUTPUT) texts[name] += text;
      });
    const refuse = (why: string, cause?: Error): void =>
      reject(new IptablesError("refused", `${[command, ...args].join(" ")}: ${why}`, { cause }));
    child.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") return refuse(error.message, error);
      const text = `there is no ${command}: install iptables, or choose --backend=nftables`;
      reject(new IptablesError("missing", text, { cause: error }));
    });
    child.on("close", (status, signal) => {
      if (status === 0) resolve(texts.stdout);
      else refuse(texts.stderr.trim() || `it ended with ${status ?? signal}`);
    });
  });
}
