import { readField } from "../select/field.ts";
import type { Entry, StoreEvent } from "./entry.ts";

/** Called in the tick of the commit, in order of revisions. Must not write to the store. */
export type StoreListener = (event: StoreEvent) => void;

/** A page of a list. `next` is the key after which the next page begins; undefined for the last page. */
export interface Page {
  readonly entries: readonly Entry[];
  readonly next: string | undefined;
  readonly remaining: number;
}

/** The objects of one resource, in order of their keys, with a bounded history of changes. */
export class Collection {
  readonly name: string;
  readonly #entries = new Map<string, Entry>();
  #keys: string[] = [];
  /** Field → its value → keys. A field is indexed from its first use on. */
  readonly #indexes = new Map<string, Map<string, Set<string>>>();
  #history: StoreEvent[] = [];
  #floor: number;
  readonly #historyLimit: number;
  readonly #listeners = new Set<StoreListener>();

  constructor(name: string, historyLimit: number, floor: number) {
    this.name = name;
    this.#historyLimit = historyLimit;
    this.#floor = floor;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Changes after this revision are known; reading from an older revision gives 410. */
  get floor(): number {
    return this.#floor;
  }

  get(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** All objects whose key starts with `prefix` (`""`, or `namespace/`), in order. */
  list(prefix = ""): Entry[] {
    return this.#entriesOf(this.#range(prefix));
  }

  /** All objects with this value of a field, in order. The first call for a field reads all objects; use only few fields. */
  listBy(field: string, value: string): Entry[] {
    let index = this.#indexes.get(field);
    if (index === undefined) {
      index = new Map();
      this.#indexes.set(field, index);
      for (const entry of this.#entries.values()) addTo(index, field, entry);
    }
    return this.#entriesOf([...(index.get(value) ?? [])].sort(compareKeys));
  }

  /** Drops history, like etcd's compaction: older watches and continue tokens are expired. */
  compact(revision: number): void {
    this.#history = [];
    this.#floor = revision;
  }

  /** Drops the changes up to this revision. The floor of a collection without such changes stays, so that its idle watches can continue. */
  forget(revision: number): void {
    const dropped = this.#history.findLastIndex((event) => event.revision <= revision) + 1;
    this.#drop(dropped);
  }

  subscribe(listener: StoreListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Changes after `revision`, oldest first. The caller must have compared `revision` with {@link floor}. */
  since(revision: number): StoreEvent[] {
    let index = this.#history.length;
    while (index > 0 && (this.#history[index - 1]?.revision ?? 0) > revision) index -= 1;
    return this.#history.slice(index);
  }

  /** At most `limit` entries after the key `after`, as they were at `revision` (not below {@link floor}). */
  page(options: {
    readonly prefix: string;
    readonly after: string;
    readonly limit: number;
    readonly revision: number;
  }): Page {
    const { prefix, after, limit, revision } = options;
    const undone = this.#undo(revision);
    const keys = undone.size === 0 ? this.#keys : this.#keysWith(undone);
    const [start, end] = rangeOf(keys, prefix, after);
    const entries: Entry[] = [];
    let index = start;
    for (; index < end && entries.length < limit; index += 1) {
      const key = keys[index] ?? "";
      const entry = undone.has(key) ? undone.get(key) : this.#entries.get(key);
      if (entry !== undefined) entries.push(entry);
    }
    const remaining = end - index;
    return { entries, remaining, next: remaining > 0 ? entries.at(-1)?.key : undefined };
  }

  /** Stores a change and calls the listeners. */
  commit(event: StoreEvent): void {
    this.#set(event);
    this.#remember(event);
    for (const listener of this.#listeners) listener(event);
  }

  /** Stores many new objects at once, without events; keys must be new. Earlier history is dropped. */
  load(entries: readonly Entry[], revision: number): void {
    for (const entry of entries) {
      this.#entries.set(entry.key, entry);
      this.#keys.push(entry.key);
      for (const [field, index] of this.#indexes) addTo(index, field, entry);
    }
    this.#keys.sort(compareKeys);
    this.compact(revision);
  }

  get watched(): boolean {
    return this.#listeners.size > 0;
  }

  #set(event: StoreEvent): void {
    const { key } = event.entry;
    const before = this.#entries.get(key);
    for (const [field, index] of this.#indexes) {
      if (before !== undefined) removeFrom(index, field, before);
      if (event.type !== "DELETED") addTo(index, field, event.entry);
    }
    if (event.type === "DELETED") {
      this.#entries.delete(key);
      const index = lowerBound(this.#keys, key);
      if (this.#keys[index] === key) this.#keys.splice(index, 1);
      return;
    }
    if (!this.#entries.has(key)) this.#keys.splice(lowerBound(this.#keys, key), 0, key);
    this.#entries.set(key, event.entry);
  }

  #remember(event: StoreEvent): void {
    this.#history.push(event);
    // The history is trimmed in large steps, so that a commit costs no copy of the history.
    if (this.#history.length < this.#historyLimit * 2) return;
    this.#drop(this.#history.length - this.#historyLimit);
  }

  #drop(count: number): void {
    if (count === 0) return;
    this.#floor = this.#history[count - 1]?.revision ?? this.#floor;
    this.#history = this.#history.slice(count);
  }

  /** State at `revision` of the keys that changed since; undefined for those that did not exist. */
  #undo(revision: number): Map<string, Entry | undefined> {
    const undone = new Map<string, Entry | undefined>();
    for (const event of this.since(revision).reverse()) undone.set(event.entry.key, event.previous);
    return undone;
  }

  #keysWith(undone: ReadonlyMap<string, Entry | undefined>): string[] {
    const keys = new Set(this.#keys);
    for (const [key, entry] of undone) {
      if (entry === undefined) keys.delete(key);
      else keys.add(key);
    }
    return [...keys].sort(compareKeys);
  }

  #range(prefix: string): string[] {
    if (prefix === "") return this.#keys;
    const [start, end] = rangeOf(this.#keys, prefix, "");
    return this.#keys.slice(start, end);
  }

  #entriesOf(keys: readonly string[]): Entry[] {
    const entries: Entry[] = [];
    for (const key of keys) {
      const entry = this.#entries.get(key);
      if (entry !== undefined) entries.push(entry);
    }
    return entries;
  }
}

function addTo(index: Map<string, Set<string>>, field: string, { key, object }: Entry): void {
  const value = readField(object, field);
  const keys = index.get(value);
  if (keys === undefined) index.set(value, new Set([key]));
  else keys.add(key);
}

function removeFrom(index: Map<string, Set<string>>, field: string, { key, object }: Entry): void {
  const value = readField(object, field);
  const keys = index.get(value);
  keys?.delete(key);
  if (keys?.size === 0) index.delete(value);
}

function compareKeys(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The first index whose key is not below `key`. */
function lowerBound(keys: readonly string[], key: string): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((keys[middle] ?? "") < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

function rangeOf(keys: readonly string[], prefix: string, after: string): [number, number] {
  const end = prefix === "" ? keys.length : lowerBound(keys, `${prefix}\uffff`);
  if (after === "") return [lowerBound(keys, prefix), end];
  const index = lowerBound(keys, after);
  return [keys[index] === after ? index + 1 : index, end];
}
