import { loadInChunks } from "./chunks.ts";
import { NftError, type NftErrorCode } from "./errors.ts";
import {
  cloneTables,
  type FakeChain,
  type FakeSet,
  type FakeTable,
  type FakeTables,
  references,
} from "./fake-state.ts";
import { parseScript } from "./parse.ts";
import { printChange, printChanges, printTable } from "./print.ts";
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

/**
 * nftables in memory. Stores and lists changes, and refuses the same changes as the kernel (missing and existing objects, references, wrong
 * elements), atomically. It understands only the references in rules.
 */
export class FakeNft implements Nft {
  #tables: FakeTables = new Map();
  #failures: NftErrorCode[] = [];

  /** Makes the next `run` fail. */
  fail(code: NftErrorCode): void {
    this.#failures.push(code);
  }

  run(changes: Iterable<NftChange>): void {
    const all = [...changes];
    const script = printChanges(all);
    const failure = this.#failures.shift();
    if (failure !== undefined) throw new NftError(failure, `injected failure (${failure})`, { script });
    this.#tables = this.#applied(all, script);
  }

  check(changes: Iterable<NftChange>): void {
    const all = [...changes];
    this.#applied(all, printChanges(all));
  }

  load(changes: Iterable<NftChange>, options?: LoadOptions): Promise<void> {
    return loadInChunks(
      (chunk) => this.run(chunk),
      changes,
      () => Promise.resolve(),
      options,
    );
  }

  #applied(changes: readonly NftChange[], script: string): FakeTables {
    const tables = cloneTables(this.#tables);
    for (const change of changes) {
      const fault = applyChange(tables, change);
      if (fault !== undefined) {
        throw new NftError(fault[0], `nft refused the transaction: ${fault[1]} in "${printChange(change)}"`, {
          script,
        });
      }
    }
    return tables;
  }

  listTables(family?: NftFamily): NftTable[] {
    return [...this.#tables.values()]
      .map(({ table }) => table)
      .filter((table) => family === undefined || table.family === family);
  }

  listChains(table: NftTable): NftChain[] {
    return [...this.#table(table).chains.values()].map(({ name, base, comment }) => ({
      name,
      ...(base === undefined ? {} : { base: { policy: "accept" as const, ...base } }),
      ...(comment === undefined ? {} : { comment }),
    }));
  }

  listRules(table: NftTable, chain: string): NftRule[] {
    const found = this.#table(table).chains.get(chain);
    if (found === undefined) throw this.#missing(`chain ${chain}`);
    return [...found.rules];
  }

  listCounters(table: NftTable, chain: string): NftRuleCounter[] {
    return this.listRules(table, chain)
      .filter(({ rule }) => /\bcounter\b/.test(rule))
      .map(({ comment, handle }) => ({ ...(comment === undefined ? {} : { comment }), handle, packets: 0, bytes: 0 }));
  }

  listSets(table: NftTable): NftSet[] {
    return [...this.#table(table).sets.values()].map(({ name, spec }) => ({ name, ...spec }));
  }

  listElements(table: NftTable, set: string): NftElement[] {
    const found = this.#table(table).sets.get(set);
    if (found === undefined) throw this.#missing(`set ${set}`);
    return [...found.elements.values()];
  }

  /** A script that makes the table, which {@link FakeNft.load} of another fake accepts. The kernel prints nested blocks instead. */
  print(table: NftTable): string | undefined {
    const found = this.#tables.get(printTable(table));
    return found === undefined ? undefined : printChanges(rebuild(found));
  }

  /** All tables as a script; {@link FakeNft.parse} reads it back. */
  dump(): string {
    return [...this.#tables.values()].map((table) => printChanges(rebuild(table))).join("");
  }

  /** A fake with the state of a `dump`. Throws {@link NftError} `invalid`. */
  static parse(script: string): FakeNft {
    const nft = new FakeNft();
    nft.run(parseScript(script));
    return nft;
  }

  [Symbol.dispose](): void {
    this.#failures = [];
  }

  #table(table: NftTable): FakeTable {
    const found = this.#tables.get(printTable(table));
    if (found === undefined) throw this.#missing(`table ${printTable(table)}`);
    return found;
  }

  #missing(what: string): NftError {
    return new NftError("not-found", `nft refused: ${what}: No such file or directory`, { script: "" });
  }
}

type Fault = readonly [code: NftErrorCode, why: string];

const NOT_FOUND: Fault = ["not-found", "No such file or directory"];
const EXISTS: Fault = ["already-exists", "File exists"];
const BUSY: Fault = ["busy", "Device or resource busy"];

function applyChange(tables: FakeTables, change: NftChange): Fault | undefined {
  const key = printTable(change.table);
  if (change.kind === "table" && (change.op === "add" || change.op === "create")) {
    if (tables.has(key)) return change.op === "create" ? EXISTS : undefined;
    const { comment } = change;
    tables.set(key, { table: change.table, comment, chains: new Map(), sets: new Map(), nextHandle: 1 });
    return undefined;
  }
  const table = tables.get(key);
  if (table === undefined) return NOT_FOUND;
  switch (change.kind) {
    case "table":
      if (change.op === "delete") tables.delete(key);
      else for (const chain of table.chains.values()) chain.rules = [];
      return undefined;
    case "chain":
      return applyChain(table, change);
    case "rule":
      return applyRule(table, change);
    case "element":
      return applyElements(table, change);
    case "set":
    case "map":
      return applySet(table, change);
  }
}

function applyChain(table: FakeTable, change: NftChange & { readonly kind: "chain" }): Fault | undefined {
  const { chain: name, base, comment } = change;
  const chain = table.chains.get(name);
  if (change.op === "add" || change.op === "create") {
    if (chain === undefined) table.chains.set(name, { name, base, comment, rules: [] });
    else if (change.op === "create" || (base !== undefined && chain.base === undefined)) return EXISTS;
    return undefined;
  }
  if (chain === undefined) return NOT_FOUND;
  if (change.op === "flush") chain.rules = [];
  else if (references(table, { chain: name })) return BUSY;
  else table.chains.delete(name);
  return undefined;
}

function applyRule(table: FakeTable, change: NftChange & { readonly kind: "rule" }): Fault | undefined {
  const chain = table.chains.get(change.chain);
  if (chain === undefined) return NOT_FOUND;
  if (change.op === "delete") {
    const left = chain.rules.filter(({ handle }) => handle !== change.handle);
    if (left.length === chain.rules.length) return NOT_FOUND;
    chain.rules = left;
    return undefined;
  }
  const missing = missingTarget(table, change.rule);
  if (missing !== undefined) return ["not-found", `No such file or directory: ${missing}`];
  table.nextHandle += 1;
  const { rule, comment } = change;
  const stored: NftRule = { rule, handle: table.nextHandle, ...(comment === undefined ? {} : { comment }) };
  chain.rules = change.op === "add" ? [...chain.rules, stored] : [stored, ...chain.rules];
  return undefined;
}

/** The first chain or set that the text names and the table does not have. */
function missingTarget(table: FakeTable, text: string): string | undefined {
  for (const [, chain = ""] of text.matchAll(/\b(?:jump|goto) ([a-zA-Z_][\w/.-]*)/g)) {
    if (!table.chains.has(chain)) return `chain ${chain}`;
  }
  for (const [, set = ""] of text.matchAll(/@([a-zA-Z_][\w/.-]*)/g)) {
    if (!table.sets.has(set)) return `set ${set}`;
  }
  return undefined;
}

function applySet(table: FakeTable, change: NftChange & { readonly kind: "set" | "map" }): Fault | undefined {
  const set = table.sets.get(change.set);
  if (change.op === "add" || change.op === "create") {
    const { spec } = change;
    if (set === undefined) table.sets.set(change.set, { name: change.set, spec, elements: new Map() });
    else if (change.op === "create" || set.spec.key !== spec.key || set.spec.value !== spec.value) return EXISTS;
    return undefined;
  }
  if (set === undefined) return NOT_FOUND;
  if (change.op === "flush") set.elements.clear();
  else if (references(table, { set: change.set })) return BUSY;
  else table.sets.delete(change.set);
  return undefined;
}

function applyElements(table: FakeTable, change: NftChange & { readonly kind: "element" }): Fault | undefined {
  const set = table.sets.get(change.set);
  if (set === undefined) return NOT_FOUND;
  for (const element of change.elements) {
    const fault = change.op === "delete" ? removeElement(set, element) : addElement(table, set, element, change.op);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function removeElement(set: FakeSet, element: NftElement): Fault | undefined {
  return set.elements.delete(element.key.join(" . ")) ? undefined : NOT_FOUND;
}

function addElement(table: FakeTable, set: FakeSet, element: NftElement, op: "add" | "create"): Fault | undefined {
  const { key, value } = element;
  if (key.length !== set.spec.key.split(" . ").length) return ["invalid", `a key of type ${set.spec.key} expected`];
  if ((value === undefined) !== (set.spec.value === undefined)) {
    return ["invalid", value === undefined ? "a map's element needs a value" : "a set's element has no value"];
  }
  if (element.timeoutSeconds !== undefined && set.spec.flags?.includes("timeout") !== true) {
    return ["invalid", "the set has no timeout flag"];
  }
  const missing = value === undefined ? undefined : missingTarget(table, value.join(" . "));
  if (missing !== undefined) return ["not-found", `No such file or directory: ${missing}`];
  const id = key.join(" . ");
  const known = set.elements.get(id);
  if (known === undefined) set.elements.set(id, element);
  else if (op === "create" || known.value?.join(" . ") !== value?.join(" . ")) return EXISTS;
  return undefined;
}

/** The changes that make a table: chains and sets first, then the rules that refer to them. */
function* rebuild({ table, comment, chains, sets }: FakeTable): Generator<NftChange> {
  yield { op: "add", kind: "table", table, ...(comment === undefined ? {} : { comment }) };
  for (const { name, base, comment: note } of chains.values()) {
    const extras = { ...(base === undefined ? {} : { base }), ...(note === undefined ? {} : { comment: note }) };
    yield { op: "add", kind: "chain", table, chain: name, ...extras };
  }
  for (const { name, spec, elements } of sets.values()) {
    yield { op: "add", kind: "set", table, set: name, spec };
    if (elements.size > 0) yield { op: "add", kind: "element", table, set: name, elements: [...elements.values()] };
  }
  for (const chain of chains.values()) yield* rebuildRules(table, chain);
}

function* rebuildRules(table: NftTable, chain: FakeChain): Generator<NftChange> {
  for (const { rule, comment } of chain.rules) {
    yield { op: "add", kind: "rule", table, chain: chain.name, rule, ...(comment === undefined ? {} : { comment }) };
  }
}
