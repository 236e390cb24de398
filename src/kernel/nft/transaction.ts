import { printChanges } from "./print.ts";
import type { NftBase, NftChange, NftElement, NftSetSpec, NftTable } from "./types.ts";

/**
 * Collects changes to one table. Plain data: iterate it, print it, hand it to {@link Nft.run}.
 *
 * ```ts
 * const tx = new NftTransaction({ family: "ip", name: "isthmus-egress" });
 * tx.replaceTable().chain("post", { type: "nat", hook: "postrouting", priority: "srcnat" });
 * tx.rule("post", 'oifname "eth0" masquerade', { comment: "pods leave as the node" });
 * nft.run(tx);
 * ```
 */
export class NftTransaction implements Iterable<NftChange> {
  readonly table: NftTable;
  readonly #changes: NftChange[] = [];

  constructor(table: NftTable) {
    this.table = table;
  }

  /** Starts anew: the table, empty, whatever there was. Atomic with all that follows. */
  replaceTable(options: { readonly comment?: string } = {}): this {
    return this.removeTable().addTable(options);
  }

  /** The table, unless it is there. */
  addTable(options: { readonly comment?: string } = {}): this {
    return this.#push({ op: "add", kind: "table", table: this.table, ...options });
  }

  /** Away with the table, if it is there. */
  removeTable(): this {
    // Deleting needs it to exist; adding is harmless when it does.
    return this.addTable().#push({ op: "delete", kind: "table", table: this.table });
  }

  /** A chain, unless it is there; with `base` it is hooked into the packet path. */
  chain(chain: string, base?: NftBase, options: { readonly comment?: string } = {}): this {
    return this.#push({
      op: "add",
      kind: "chain",
      table: this.table,
      chain,
      ...(base === undefined ? {} : { base }),
      ...options,
    });
  }

  flushChain(chain: string): this {
    return this.#push({ op: "flush", kind: "chain", table: this.table, chain });
  }

  deleteChain(chain: string): this {
    return this.#push({ op: "delete", kind: "chain", table: this.table, chain });
  }

  /** A rule at the end of a chain. */
  rule(chain: string, rule: string, options: { readonly comment?: string } = {}): this {
    return this.#push({ op: "add", kind: "rule", table: this.table, chain, rule, ...options });
  }

  /** A rule at the start of a chain. */
  insertRule(chain: string, rule: string, options: { readonly comment?: string } = {}): this {
    return this.#push({ op: "insert", kind: "rule", table: this.table, chain, rule, ...options });
  }

  deleteRule(chain: string, handle: number): this {
    return this.#push({ op: "delete", kind: "rule", table: this.table, chain, handle });
  }

  /** A set, or with `spec.value` a map, unless it is there. */
  set(set: string, spec: NftSetSpec): this {
    return this.#push({ op: "add", kind: "set", table: this.table, set, spec });
  }

  flushSet(set: string): this {
    return this.#push({ op: "flush", kind: "set", table: this.table, set });
  }

  deleteSet(set: string): this {
    return this.#push({ op: "delete", kind: "set", table: this.table, set });
  }

  /** Elements; those that are there already stay. Nothing for an empty list. */
  elements(set: string, elements: readonly NftElement[]): this {
    return elements.length === 0 ? this : this.#push({ op: "add", kind: "element", table: this.table, set, elements });
  }

  /** Throws `not-found` in `run` when one of them is not there. */
  deleteElements(set: string, elements: readonly NftElement[]): this {
    return elements.length === 0
      ? this
      : this.#push({ op: "delete", kind: "element", table: this.table, set, elements });
  }

  get isEmpty(): boolean {
    return this.#changes.length === 0;
  }

  [Symbol.iterator](): Iterator<NftChange> {
    return this.#changes[Symbol.iterator]();
  }

  /** In nft(8) syntax. Throws {@link NftError} `invalid` for what cannot be written down. */
  toString(): string {
    return printChanges(this.#changes);
  }

  #push(change: NftChange): this {
    this.#changes.push(change);
    return this;
  }
}
