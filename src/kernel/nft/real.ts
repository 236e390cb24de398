import { setImmediate } from "node:timers/promises";
import { C, close, duplicate, libnftables, type NftHandle, socket } from "#kernel/ffi";
import { NETLINK } from "#kernel/netlink";
import { inNetNs } from "#kernel/netns";
import { loadInChunks } from "./chunks.ts";
import { fromNftText, NftError } from "./errors.ts";
import { parseChains, parseCounters, parseElements, parseSets, parseTables } from "./listing.ts";
import { printChanges, printTable } from "./print.ts";
import { parseRules } from "./rules-text.ts";
import type {
  LoadOptions,
  Nft,
  NftChain,
  NftChange,
  NftElement,
  NftFamily,
  NftRule,
  NftRuleCounter,
  NftSet,
  NftTable,
} from "./types.ts";

/** NFT_CTX_OUTPUT_* of nftables/libnftables.h. */
const OUTPUT = {
  STATELESS: 1 << 2,
  HANDLE: 1 << 3,
  JSON: 1 << 4,
  NUMERIC: (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10),
  TERSE: 1 << 11,
} as const;

/** Opens the nftables of a namespace, whose handle may be closed afterwards. Needs CAP_NET_ADMIN there. */
export function openNft(ns: { readonly fd: number }): Nft {
  const own = duplicate(ns.fd);
  try {
    return new LibnftablesNft(own, inNetNs({ fd: own }, openContext));
  } catch (error) {
    close(own);
    throw error;
  }
}

/** Makes a context in the thread's namespace. Throws `KernelError` and {@link NftError}. */
function openContext(): NftHandle {
  // libnftables ends the process if it cannot make its socket, so this is tried first.
  close(socket(C.AF_NETLINK, C.SOCK_RAW, NETLINK.NETFILTER));
  const context = libnftables().contextNew();
  if (context === undefined)
    throw new NftError("failed", "Cannot make an nftables context: check that this kernel has nf_tables", {
      script: "",
    });
  return context;
}

/** Chains of all programs as JSON (libnftables-json(5)), for diagnoses. Each method throws {@link NftError}. The opener disposes it. */
export interface RulesetReader extends Disposable {
  /** All chains, without rules. */
  chains(): unknown;
  /** A chain with its rules; names of states and protocols, not their numbers. */
  chain(table: NftTable, name: string): unknown;
}

/** Opens the chains of all programs of a namespace for reading. Needs CAP_NET_ADMIN there. */
export function openRuleset(ns: { readonly fd: number }): RulesetReader {
  const nft = openNft(ns) as LibnftablesNft;
  return {
    chains: () => nft.read("list chains"),
    chain: (table, name) => nft.read(`list chain ${printTable(table)} ${name}`),
    [Symbol.dispose]: () => nft[Symbol.dispose](),
  };
}

class LibnftablesNft implements Nft {
  readonly #ns: number;
  readonly #context: NftHandle;
  #open = true;

  /** Owns both. */
  constructor(ns: number, context: NftHandle) {
    this.#ns = ns;
    this.#context = context;
  }

  run(changes: Iterable<NftChange>): void {
    const script = printChanges(changes);
    if (script !== "") this.#execute(script, 0);
  }

  check(changes: Iterable<NftChange>): void {
    const script = printChanges(changes);
    const library = libnftables();
    library.setDryRun(this.#context, true);
    try {
      if (script !== "") this.#execute(script, 0);
    } finally {
      library.setDryRun(this.#context, false);
    }
  }

  load(changes: Iterable<NftChange>, options?: LoadOptions): Promise<void> {
    return loadInChunks((chunk) => this.run(chunk), changes, setImmediate, options);
  }

  listTables(family?: NftFamily): NftTable[] {
    return parseTables(this.#json(`list tables${family === undefined ? "" : ` ${family}`}`));
  }

  listChains(table: NftTable): NftChain[] {
    return parseChains(this.#json(`list table ${printTable(table)}`, OUTPUT.TERSE));
  }

  listRules(table: NftTable, chain: string): NftRule[] {
    const script = `list chain ${printTable(table)} ${chain}`;
    return parseRules(this.#execute(script, OUTPUT.HANDLE | OUTPUT.STATELESS | OUTPUT.NUMERIC));
  }

  listCounters(table: NftTable, chain: string): NftRuleCounter[] {
    return parseCounters(this.#json(`list chain ${printTable(table)} ${chain}`));
  }

  listSets(table: NftTable): NftSet[] {
    return parseSets(this.#json(`list table ${printTable(table)}`, OUTPUT.TERSE));
  }

  listElements(table: NftTable, set: string): NftElement[] {
    const list = (word: "set" | "map"): NftElement[] =>
      parseElements(this.#json(`list ${word} ${printTable(table)} ${set}`));
    try {
      return list("map");
    } catch (error) {
      if (error instanceof NftError && error.code === "not-found") return list("set");
      throw error;
    }
  }

  print(table: NftTable): string | undefined {
    try {
      return this.#execute(`list table ${printTable(table)}`, OUTPUT.STATELESS | OUTPUT.NUMERIC);
    } catch (error) {
      if (error instanceof NftError && error.code === "not-found") return undefined;
      throw error;
    }
  }

  /** The JSON of a list, with symbolic names. Not of {@link Nft}. */
  read(script: string): unknown {
    const text = this.#execute(script, OUTPUT.JSON | OUTPUT.TERSE | OUTPUT.HANDLE);
    // Without objects some versions print nothing.
    return text.trim() === "" ? {} : JSON.parse(text);
  }

  #json(script: string, flags = 0): unknown {
    return JSON.parse(this.#execute(script, OUTPUT.JSON | OUTPUT.NUMERIC | flags));
  }

  /** Runs in the namespace: the context has its own socket there, but looks up link names through a new one. */
  #execute(script: string, flags: number): string {
    if (!this.#open) throw new NftError("failed", "Cannot use the nftables client after it was disposed", { script });
    const library = libnftables();
    library.setOutputFlags(this.#context, flags);
    const done = inNetNs({ fd: this.#ns }, () => library.run(this.#context, script));
    const error = library.error(this.#context);
    if (!done) throw fromNftText(error, script);
    return library.output(this.#context);
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    libnftables().contextFree(this.#context);
    close(this.#ns);
  }
}
