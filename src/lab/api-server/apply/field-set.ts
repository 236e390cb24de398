import { isObject, type JsonObject, put } from "../object/json.ts";

interface Slot {
  member: boolean;
  child: FieldSet | undefined;
}

/** The maximum nesting of a decoded set. */
const MAX_DEPTH = 200;

/**
 * A set of field paths in the form of `managedFields` (FieldsV1 of structured-merge-diff). A path's elements are written
 * `f:name`, `k:{"key":"value"}`, `v:value` or `i:index`.
 */
export class FieldSet {
  readonly #slots = new Map<string, Slot>();

  /** Reads FieldsV1. Undefined when it is malformed. */
  static decode(fields: JsonObject, depth = 0): FieldSet | undefined {
    if (depth > MAX_DEPTH) return undefined;
    const set = new FieldSet();
    for (const [element, inner] of Object.entries(fields)) {
      if (element === ".") continue;
      if (!/^[fkvi]:/.test(element) || !isObject(inner)) return undefined;
      const child = FieldSet.decode(inner, depth + 1);
      if (child === undefined) return undefined;
      const member = child.isEmpty() || Object.hasOwn(inner, ".");
      set.#slots.set(element, { member, child: child.isEmpty() ? undefined : child });
    }
    return set;
  }

  /** Writes FieldsV1, elements in order. */
  encode(): JsonObject {
    const fields: JsonObject = {};
    for (const element of [...this.#slots.keys()].sort()) {
      const slot = this.#slots.get(element);
      if (slot === undefined) continue;
      const inner = slot.child?.encode() ?? {};
      put(fields, element, slot.member && slot.child !== undefined ? { ".": {}, ...inner } : inner);
    }
    return fields;
  }

  isEmpty(): boolean {
    return this.#slots.size === 0;
  }

  /** The elements that are members or lead to members. */
  elements(): string[] {
    return [...this.#slots.keys()];
  }

  child(element: string): FieldSet | undefined {
    return this.#slots.get(element)?.child;
  }

  hasMember(element: string): boolean {
    return this.#slots.get(element)?.member === true;
  }

  hasElement(element: string): boolean {
    return this.#slots.has(element);
  }

  /** Makes the element itself a member. */
  insert(element: string): void {
    const slot = this.#slots.get(element);
    if (slot === undefined) this.#slots.set(element, { member: true, child: undefined });
    else slot.member = true;
  }

  /** Adds `child` to the set below `element`. An empty child changes nothing. */
  insertChild(element: string, child: FieldSet): void {
    if (child.isEmpty()) return;
    const slot = this.#slots.get(element);
    if (slot === undefined) this.#slots.set(element, { member: false, child });
    else slot.child = slot.child === undefined ? child : slot.child.union(child);
  }

  union(other: FieldSet): FieldSet {
    const result = new FieldSet();
    for (const set of [this, other]) {
      for (const [element, slot] of set.#slots) {
        if (slot.member) result.insert(element);
        if (slot.child !== undefined) result.insertChild(element, slot.child);
      }
    }
    return result;
  }

  /** Members of this set that are not members of the other. */
  difference(other: FieldSet): FieldSet {
    return this.#filter(other, (mine, theirs) => mine && !theirs, true);
  }

  /** Members of both sets. */
  intersection(other: FieldSet): FieldSet {
    return this.#filter(other, (mine, theirs) => mine && theirs, false);
  }

  /** Members of this set that neither are members of the other nor lie below one. */
  without(other: FieldSet): FieldSet {
    const result = new FieldSet();
    for (const [element, slot] of this.#slots) {
      if (other.hasMember(element)) continue;
      const theirs = other.child(element);
      if (slot.member) result.insert(element);
      if (slot.child !== undefined)
        result.insertChild(element, theirs === undefined ? slot.child : slot.child.without(theirs));
    }
    return result;
  }

  equals(other: FieldSet): boolean {
    if (this.#slots.size !== other.#slots.size) return false;
    for (const [element, slot] of this.#slots) {
      const theirs = other.#slots.get(element);
      if (theirs === undefined || theirs.member !== slot.member) return false;
      if ((slot.child ?? EMPTY).equals(theirs.child ?? EMPTY) === false) return false;
    }
    return true;
  }

  /** Every member as a path of elements. */
  paths(): string[][] {
    const paths: string[][] = [];
    for (const [element, slot] of this.#slots) {
      if (slot.member) paths.push([element]);
      for (const rest of slot.child?.paths() ?? []) paths.push([element, ...rest]);
    }
    return paths;
  }

  #filter(other: FieldSet, keep: (mine: boolean, theirs: boolean) => boolean, keepAlone: boolean): FieldSet {
    const result = new FieldSet();
    for (const [element, slot] of this.#slots) {
      if (keep(slot.member, other.hasMember(element))) result.insert(element);
      if (slot.child === undefined) continue;
      const theirs = other.child(element);
      if (theirs !== undefined) result.insertChild(element, slot.child.#filter(theirs, keep, keepAlone));
      else if (keepAlone) result.insertChild(element, slot.child);
    }
    return result;
  }
}

const EMPTY = new FieldSet();

/** A path as conflicts show it: `.spec.ports[k:{"port":80}].name` becomes `.spec.ports[port=80].name`. */
export function describePath(path: readonly string[]): string {
  return path
    .map((element) => {
      const text = element.slice(2);
      if (element.startsWith("f:")) return `.${text}`;
      if (!element.startsWith("k:")) return `[${element.startsWith("v:") ? `=${text}` : text}]`;
      const keys = JSON.parse(text) as JsonObject;
      return `[${Object.entries(keys)
        .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
        .join(",")}]`;
    })
    .join("");
}
