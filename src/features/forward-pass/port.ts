import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import type { IpFamily } from "#base/ip";
import { inNetNs } from "#kernel/netns";
import { ForwardPassError } from "./errors.ts";

/** One of the chains FORWARD of a namespace. */
export interface ForwardPlace {
  readonly family: IpFamily;
  readonly variant: "nft" | "legacy";
}

/** iptables of one namespace. Methods reject with {@link ForwardPassError}. */
export interface IptablesPort {
  /** Returns true if the old variant has its table filter. Cheap. */
  hasLegacy(family: IpFamily): boolean;
  /** The text of `iptables -S FORWARD`. */
  list(place: ForwardPlace): Promise<string>;
  /** Applies a script whole or not at all. */
  restore(place: ForwardPlace, script: string): Promise<void>;
}

/** Seconds that iptables waits for another program's lock, and milliseconds of one run. */
const LOCK_SECONDS = 5;
const RUN_MS = 15_000;
/** Bytes of a listing that are kept. */
const MAX_OUTPUT = 1 << 22;
const PROGRAM = { 4: "iptables", 6: "ip6tables" } as const;
const NAMES = { 4: "ip_tables_names", 6: "ip6_tables_names" } as const;

/** Opens iptables of a namespace, which must stay open as long. */
export function openIptables(netns: { readonly fd: number }): IptablesPort {
  return {
    hasLegacy: (family) => {
      try {
        // The names of the thread's namespace.
        return inNetNs(netns, () => readFileSync(`/proc/thread-self/net/${NAMES[family]}`, "utf8"))
          .split("\n")
          .includes("filter");
      } catch (error) {
        if (error instanceof Error && "syscall" in error) return false;
        throw error;
      }
    },
    list: ({ family, variant }) =>
      run(netns, `${PROGRAM[family]}-${variant}`, ["-w", String(LOCK_SECONDS), "-S", "FORWARD"], ""),
    restore: async ({ family, variant }, script) => {
      await run(netns, `${PROGRAM[family]}-${variant}-restore`, ["--noflush", "-w", String(LOCK_SECONDS)], script);
    },
  };
}

function run(netns: { readonly fd: number }, command: string, args: readonly string[], input: string): Promise<string> {
  return new Promise((resolve, reject) => {
    // A child starts in the namespace of the thread that makes it.
    const child = inNetNs(netns, () => spawn(command, args, { stdio: "pipe", timeout: RUN_MS }));
    const texts = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const)
      child[name].setEncoding("utf8").on("data", (text: string) => {
        if (texts[name].length < MAX_OUTPUT) texts[name] += text;
      });
    child.on("error", (error: NodeJS.ErrnoException) => {
      const code = error.code === "ENOENT" ? "missing" : "refused";
      reject(new ForwardPassError(code, `cannot run ${command}: ${error.message}`, { cause: error }));
    });
    // It may end before it has read its input.
    child.stdin.on("error", () => undefined);
    child.stdin.end(input);
    child.on("close", (status, signal) => {
      if (status === 0) resolve(texts.stdout);
      else
        reject(
          new ForwardPassError("refused", `${command}: ${texts.stderr.trim() || `it ended with ${status ?? signal}`}`),
        );
    });
  });
}
