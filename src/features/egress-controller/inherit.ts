import type { StoredMeta } from "#kube/client";
import { isRecord } from "./applied.ts";

type Entry = NonNullable<StoredMeta["managedFields"]>[number];

/** The names under which Coil's controllers have written objects (by an update, not an apply). */
const COIL_MANAGERS: readonly string[] = ["coil-egress-controller", "coil-controller"];

/**
 * Pure: the managed fields of an object after those that Coil's controllers have written are made fields that `manager` has applied; `undefined`
 * if there are none. Without this a field that Coil wrote and the Egress does not want any more would stay for ever, since only its owner can
 * remove it.
 */
export function inheritFields(entries: readonly Entry[] | undefined, manager: string): Entry[] | undefined {
  if (entries === undefined) return undefined;
  const isCoils = (entry: Entry): boolean =>
    entry.operation === "Update" && (entry.subresource ?? "") === "" && COIL_MANAGERS.includes(entry.manager ?? "");
  const coils = entries.filter(isCoils);
  const own = entries.find(({ operation, manager: by }) => operation === "Apply" && by === manager);
  if (coils.length === 0 || own === undefined) return undefined;
  const fieldsV1 = coils.reduce<unknown>((all, { fieldsV1: more }) => union(all, more), own.fieldsV1);
  return entries
    .filter((entry) => !isCoils(entry))
    .map((entry) => (entry === own ? ({ ...own, fieldsV1 } as Entry) : entry));
}

/** The union of two sets of fields in the form of `managedFields`: trees of JSON objects. */
function union(a: unknown, b: unknown): unknown {
  if (!isRecord(a)) return b;
  if (!isRecord(b)) return a;
  const all: Record<string, unknown> = { ...a };
  for (const [key, value] of Object.entries(b)) all[key] = key in a ? union(a[key], value) : value;
  return all;
}
