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

  /** Makes the table empty. This is atomic with all later changes. */
  replaceTable(options: { readonly comment?: string } = {}): this {
    return this.removeTable().addTable(options);
  }

  /** Adds the table, unless it exists. */
  addTable(options: { readonly comment?: string } = {}): this {
    return this.#push({ op: "add", kind: "table", table: this.table, ...options });
  }

  /** Removes the table, if it exists. */
  removeTable(): this {
    // A table must exist to be deleted. Adding an existing one changes nothing.
    return this.addTable().#push({ op: "delete", kind: "table", table: this.table });
  }

  /** Adds a chain, unless it exists; with `base` it is hooked into the packet path. */
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

  /** Adds a rule at the end of a chain. */
  rule(chain: string, rule: string, options: { readonly comment?: string } = {}): this {
    return this.#push({ op: "add", kind: "rule", table: this.table, chain, rule, ...options });
  }

  /** Adds a rule at the start of a chain. */
  insertRule(chain: string, rule: string, options: { readonly comment?: string } = {}): this {
    return this.#push({ op: "insert", kind: "rule", table: this.table, chain, rule, ...options });
  }

  deleteRule(chain: string, handle: number): this {
    return this.#push({ op: "delete", kind: "rule", table: this.table, chain, handle });
  }

  /** Adds a set, or with `spec.value` a map, unless it exists. */
  set(set: string, spec: NftSetSpec): this {
    return this.#push({ op: "add", kind: "set", table: this.table, set, spec });
  }

  flushSet(set: string): this {
    return this.#push({ op: "flush", kind: "set", table: this.table, set });
  }

  deleteSet(set: string): this {
    return this.#push({ op: "delete", kind: "set", table: this.table, set });
  }

  /** Adds elements; existing ones stay. Adds nothing for an empty list. */
  elements(set: string, elements: readonly NftElement[]): this {
    return elements.length === 0 ? this : this.#push({ op: "add", kind: "element", table: this.table, set, elements });
  }

  /** Deletes elements. `run` throws `not-found` if one of them does not exist. */
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

  /** The transaction in nft(8) syntax. Throws as {@link printChanges}. */
  toString(): string {
    return printChanges(this.#changes);
  }

  #push(change: NftChange): this {
    this.#changes.push(change);
    return this;
  }
}
