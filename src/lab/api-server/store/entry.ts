import type { KubeObject } from "../object/meta.ts";

/** One version of one object. Immutable; its bytes are encoded once, when they are first needed. */
export class Entry {
  readonly key: string;
  readonly revision: number;
  readonly object: KubeObject;
  #bytes: Buffer | undefined;

  constructor(key: string, revision: number, object: KubeObject) {
    this.key = key;
    this.revision = revision;
    this.object = object;
  }

  /** JSON in the stored version. */
  get bytes(): Buffer {
    this.#bytes ??= ownBytes(JSON.stringify(this.object));
    return this.#bytes;
  }
}

/** The UTF-8 bytes of a text, in memory of their own: a part of Node's common pool would keep all 64 KiB of that for as long as the object is there. */
export function ownBytes(text: string): Buffer {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}

/** A committed change. `entry` is the state after it; for a deletion, the last state with the revision of the deletion. */
export interface StoreEvent {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly revision: number;
  readonly entry: Entry;
  readonly previous: Entry | undefined;
}

/** `namespace/name`, or `/name` for cluster-scoped objects. */
export function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}
