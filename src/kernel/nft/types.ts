import type { AbortOptions } from "#base/async";

/** Options of {@link Nft.load}. */
export interface LoadOptions extends AbortOptions {
  /** Maximum of elements in one transaction. Default 500. */
  readonly chunkSize?: number;
}

/** Address families of tables (nft(8)). */
export type NftFamily = "ip" | "ip6" | "inet" | "arp" | "bridge" | "netdev";

/** One table. A feature owns whole tables, named after it. */
export interface NftTable {
  readonly family: NftFamily;
  readonly name: string;
}

/** Hook of a base chain. */
export interface NftBase {
  readonly type: "filter" | "nat" | "route";
  readonly hook: "prerouting" | "input" | "forward" | "output" | "postrouting" | "ingress";
  /** A number, or a name such as `dstnat` or `filter - 10`. The kernel reports names as numbers. */
  readonly priority: number | string;
  readonly policy?: "accept" | "drop";
  /** The device; only for the hook `ingress` of a netdev table. */
  readonly device?: string;
}

/** Properties of a set, or with `value` of a map. */
export interface NftSetSpec {
  /** Type of the key: `ipv4_addr . inet_proto . inet_service`; with `typeof`, expressions instead of types. */
  readonly key: string;
  /** Type of the value of a map: `verdict`, `ipv4_addr . inet_service`. */
  readonly value?: string;
  /**
   * Key and value are expressions, such as `ip daddr . numgen random mod 2`, whose types are used: for types without a
   * name. Listed sets show the types' names.
   */
  readonly typeof?: boolean;
  readonly flags?: readonly ("constant" | "interval" | "timeout" | "dynamic")[];
  /** Lifetime of elements without a timeout of their own. */
  readonly timeoutSeconds?: number;
  readonly size?: number;
  readonly comment?: string;
}

/** An element: the parts of its key, and for a map those of its value. */
export interface NftElement {
  readonly key: readonly string[];
  readonly value?: readonly string[];
  readonly comment?: string;
  readonly timeoutSeconds?: number;
}

/** One command of a transaction, as plain data. */
export type NftChange =
  | {
      readonly op: "add" | "create" | "delete" | "flush";
      readonly kind: "table";
      readonly table: NftTable;
      readonly comment?: string;
    }
  | {
      readonly op: "add" | "create" | "delete" | "flush";
      readonly kind: "chain";
      readonly table: NftTable;
      readonly chain: string;
      readonly base?: NftBase;
      readonly comment?: string;
    }
  | {
      readonly op: "add" | "insert";
      readonly kind: "rule";
      readonly table: NftTable;
      readonly chain: string;
      /** The rule in nft(8) syntax: one line, without its comment. */
      readonly rule: string;
      readonly comment?: string;
    }
  | {
      readonly op: "delete";
      readonly kind: "rule";
      readonly table: NftTable;
      readonly chain: string;
      readonly handle: number;
    }
  | {
      readonly op: "add" | "create";
      readonly kind: "set";
      readonly table: NftTable;
      readonly set: string;
      readonly spec: NftSetSpec;
    }
  | { readonly op: "delete" | "flush"; readonly kind: "set" | "map"; readonly table: NftTable; readonly set: string }
  | {
      readonly op: "add" | "create" | "delete";
      readonly kind: "element";
      readonly table: NftTable;
      readonly set: string;
      readonly elements: readonly NftElement[];
    };

/** A chain as listed. */
export interface NftChain {
  readonly name: string;
  readonly base?: NftBase;
  readonly comment?: string;
}

/** A rule as listed. */
export interface NftRule {
  /** The rule in the kernel's spelling, without the comment; the fake keeps the given spelling. */
  readonly rule: string;
  readonly comment?: string;
  readonly handle: number;
}

/** The counter of a rule. */
export interface NftRuleCounter {
  readonly comment?: string;
  readonly handle: number;
  readonly packets: number;
  readonly bytes: number;
}

/** A set or map as listed. */
export interface NftSet extends NftSetSpec {
  readonly name: string;
}

/** The nftables of one namespace. Every method throws {@link NftError}. The opener disposes it. */
export interface Nft extends Disposable {
  /** Applies all changes or no change. A few changes take 0.2 ms; elements 40 µs each. */
  run(changes: Iterable<NftChange>): void;
  /** Throws what `run` would throw, and changes nothing. */
  check(changes: Iterable<NftChange>): void;
  /**
   * For thousands of elements. Applies the changes in transactions of at most `chunkSize` elements, and yields to the event
   * loop between them. Not atomic: transactions before an error or abort stay applied.
   */
  load(changes: Iterable<NftChange>, options?: LoadOptions): Promise<void>;
  listTables(family?: NftFamily): NftTable[];
  /** The chains; throws `not-found` if there is no such table. */
  listChains(table: NftTable): NftChain[];
  listRules(table: NftTable, chain: string): NftRule[];
  /** The values of the rules that count, in the order of the rules; throws `not-found` as `listRules`. The fake counts nothing. */
  listCounters(table: NftTable, chain: string): NftRuleCounter[];
  /** Sets and maps. */
  listSets(table: NftTable): NftSet[];
  /** The elements; slow for large sets (60 µs an element). */
  listElements(table: NftTable, set: string): NftElement[];
  /** The table in nft(8) syntax, without counters' values; `undefined` if there is none. */
  print(table: NftTable): string | undefined;
}
