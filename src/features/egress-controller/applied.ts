import { createHash } from "node:crypto";
import type { KubeObject } from "#kube/client";

/**
 * Remembers for each applied object what was applied and what the server made of it, so that the same is not applied again. Texts that the server
 * rewrites (`0.1` for a processor becomes `100m`) and fields of others therefore count for no difference, and a field that somebody changes
 * does. It begins empty: each object is applied once, which changes nothing on a server where all is so.
 */
export class AppliedStates {
  readonly #states = new Map<string, string>();

  /** Returns true if `wanted` was applied last, and the object is still as the server answered then. */
  isSettled(key: string, wanted: unknown, actual: KubeObject): boolean {
    return this.#states.get(key) === stateOf(wanted, actual);
  }

  /** Notes the server's answer to an apply. */
  note(key: string, wanted: unknown, answer: KubeObject): void {
    this.#states.set(key, stateOf(wanted, answer));
  }

  forget(key: string): void {
    this.#states.delete(key);
  }
}

/** Pure: the part of an object that an apply may change: neither the status nor what the server counts. */
export function wishOf({ metadata, status: _status, ...rest }: KubeObject & { readonly status?: unknown }): string {
  const { labels, annotations, ownerReferences } = metadata;
  return canonical({ ...rest, labels, annotations, ownerReferences });
}

function stateOf(wanted: unknown, actual: KubeObject): string {
  return createHash("sha256").update(canonical(wanted)).update("\n").update(wishOf(actual)).digest("base64url");
}

/** JSON whose members are in alphabetical order: a watch and an answer may have them in different ones. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    isRecord(item) ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1))) : item,
  );
}

/** Returns true if a value is an object with members: neither null nor a list. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
