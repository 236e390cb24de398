import { KernelError } from "#kernel/errors";
import { type ElementBatch, MAX_BATCH_BYTES } from "./batch.ts";
import type { ElementChange } from "./changes.ts";
import type { NftElements } from "./types.ts";
import { type ByteString, type ElementTable, type ElementValue, type RawElement, verdictText } from "./values.ts";

interface Stored {
  readonly keyEnd: ByteString | undefined;
  readonly value: ElementValue | undefined;
  readonly comment: string | undefined;
}

type Sets = Map<string, Map<ByteString, Stored>>;

/** Elements in memory, for sets that are added first. Refuses a whole batch where the kernel does. Batches must record. */
export class FakeNftElements implements NftElements {
  readonly wantsRecords = true;
  /** A test may make it smaller. */
  maxBatchBytes = MAX_BATCH_BYTES;
  #sets: Sets = new Map();
  #generation = 1;
  readonly #failures: KernelError[] = [];
  /** Every batch that was applied, in order. */
  readonly commits: (readonly ElementChange[])[] = [];

  /** Adds a set or map. */
  addSet(table: ElementTable, set: string): void {
    this.#sets.set(id(table, set), new Map());
  }

  /** Makes the next commit fail; it changes nothing. */
  fail(error: KernelError): void {
    this.#failures.push(error);
  }

  async commit(batch: ElementBatch): Promise<void> {
    this.commitNow(batch);
  }

  commitNow(batch: ElementBatch): void {
    if (batch.isEmpty) return;
    if (batch.changes.length !== batch.count) throw new Error("FakeNftElements: the batch does not record its changes");
    if (batch.byteLength > this.maxBatchBytes)
      throw new KernelError("invalid", `Cannot commit ${batch.byteLength} bytes: the maximum is ${this.maxBatchBytes}`);
    const failure = this.#failures.shift();
    if (failure !== undefined) throw failure;
    const next: Sets = new Map(Array.from(this.#sets, ([name, elements]) => [name, new Map(elements)]));
    for (const change of batch.changes) apply(next, change.table, change);
    this.#sets = next;
    this.#generation += 1;
    this.commits.push(batch.changes);
  }

  list(table: ElementTable, set: string): RawElement[] {
    return Array.from(this.#set(table, set), ([key, stored]) => rawElement(key, stored));
  }

  async listInSlices(
    table: ElementTable,
    set: string,
    { keep = () => true, limit }: Parameters<NftElements["listInSlices"]>[2] = {},
  ): Promise<RawElement[]> {
    return this.list(table, set).filter(keep).slice(0, limit);
  }

  /** Names of the sets: the fake has no chains. */
  names(table: ElementTable): { readonly chains: readonly string[]; readonly sets: readonly string[] } | undefined {
    const prefix = id(table, "");
    const sets = [...this.#sets.keys()]
      .filter((name) => name.startsWith(prefix))
      .map((name) => name.slice(prefix.length));
    return sets.length === 0 ? undefined : { chains: [], sets };
  }

  /** Always empty: the fake has no rules. */
  ruleHandles(): string[] {
    return [];
  }

  /** Always empty, as {@link FakeNftElements.ruleHandles}. */
  rules(): [] {
    return [];
  }

  /** Lines of the sets alone. */
  structure(table: ElementTable): string[] {
    return (this.names(table)?.sets ?? []).map((name) => `set ${name}`);
  }

  find(table: ElementTable, set: string, key: ByteString): RawElement | undefined {
    const stored = this.#set(table, set).get(key);
    return stored === undefined ? undefined : rawElement(key, stored);
  }

  generation(): number {
    return this.#generation;
  }

  [Symbol.dispose](): void {
    this.#failures.length = 0;
  }

  #set(table: ElementTable, set: string): Map<ByteString, Stored> {
    return found(this.#sets, table, set);
  }
}

function apply(sets: Sets, table: ElementTable, change: ElementChange): void {
  if (change.op === "rule" || change.op === "empty") return; // the fake knows no rules
  if (change.op === "map") {
    if (!sets.has(id(table, change.set))) sets.set(id(table, change.set), new Map());
    return;
  }
  const elements = found(sets, table, change.set);
  if (change.op === "flush") {
    elements.clear();
    return;
  }
  const known = elements.get(change.key);
  if (change.op === "delete") {
    if (known === undefined) throw refusal("not-found", "ENOENT", table, change);
    elements.delete(change.key);
    return;
  }
  if (known !== undefined && text(known.value) !== text(change.value))
    throw refusal("already-exists", "EEXIST", table, change);
  if (known === undefined)
    elements.set(change.key, { keyEnd: change.keyEnd, value: change.value, comment: change.comment });
}

function found(sets: Sets, table: ElementTable, set: string): Map<ByteString, Stored> {
  const elements = sets.get(id(table, set));
  if (elements === undefined)
    throw new KernelError("not-found", `There is no set ${id(table, set)}`, { errno: "ENOENT" });
  return elements;
}

function refusal(
  code: "already-exists" | "not-found",
  errno: string,
  table: ElementTable,
  change: ElementChange & { readonly op: "add" | "delete" },
): KernelError {
  const key = Buffer.from(change.key, "latin1").toString("hex");
  return new KernelError(code, `Cannot ${change.op} element ${key} of ${id(table, change.set)}`, { errno });
}

function rawElement(key: ByteString, { keyEnd, value, comment }: Stored): RawElement {
  return {
    key,
    ...(keyEnd === undefined ? {} : { keyEnd }),
    ...(value === undefined ? {} : { value }),
    ...(comment === undefined ? {} : { comment }),
  };
}

function text(value: ElementValue | undefined): string {
  return value === undefined || typeof value === "string" ? `=${value ?? ""}` : verdictText(value);
}

function id({ family, name }: ElementTable, set: string): string {
  return `${family} ${name} ${set}`;
}
