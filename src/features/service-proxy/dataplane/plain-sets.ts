import type { ByteString } from "#kernel/nft-elements";
import type { ChangedKeys, ElementChanges } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import { type ObservedTable, PLAIN_SETS } from "./observed-table.ts";
import type { WantedState } from "./types.ts";

/** Keys that are added to sets without values before the front ends change, and keys that are removed after the front ends have changed. */
export interface SetChanges<C extends ElementChanges> {
  readonly add: C;
  readonly remove: C;
  /** The sets after both changes. */
  readonly next: ReadonlyMap<string, Set<ByteString>>;
  /** Number of changes that no plan requested. */
  readonly drift: number;
}

/** Changes that were requested since the last successful sync. */
export interface Requested extends ChangedKeys {
  /** Keys of `nodeport-ips` at the last successful sync; empty before the first sync. */
  readonly nodePortIPs: ReadonlySet<ByteString>;
}

/** Compares the requested keys with the kernel's; with `full`, compares all keys. Pure but for the batches, which have to be new. */
export function changeSets<C extends ElementChanges>(
  observed: Pick<ObservedTable, "sets">,
  state: WantedState,
  requested: Requested,
  { full, add, remove }: { readonly full: boolean; readonly add: C; readonly remove: C },
): SetChanges<C> {
  const wanted = {
    [SETS.clusterIps]: [state.services.clusterIPs, requested.clusterIPs],
    [SETS.hairpin]: [state.services.hairpinEndpoints, requested.hairpinEndpoints],
    [SETS.nodePortIps]: [state.nodePortIPs, undefined],
  } as const;
  const isRequested = (key: ByteString, keys: ReadonlySet<ByteString> | undefined): boolean =>
    keys === undefined ? requested.nodePortIPs.has(key) !== state.nodePortIPs.has(key) : keys.has(key);
  let drift = 0;
  const next = new Map<string, Set<ByteString>>();
  for (const name of PLAIN_SETS) {
    const [want, keys] = wanted[name];
    const touched = full ? undefined : keys;
    // The set is copied only for a full comparison: the work of a partial sync must depend only on the size of the change.
    const known = observed.sets.get(name) ?? new Set<ByteString>();
    const result = touched === undefined ? new Set(known) : known;
    for (const key of touched ?? union(known, want)) {
      if (want.has(key) && !result.has(key)) {
        add.add(name, key);
        result.add(key);
      } else if (!want.has(key) && result.delete(key)) {
        remove.delete(name, key);
      } else continue;
      if (!isRequested(key, keys)) drift += 1;
    }
    next.set(name, result);
  }
  return { add, remove, next, drift };
}

function* union<T>(a: ReadonlySet<T>, b: ReadonlySet<T>): Generator<T> {
  yield* a;
  for (const one of b) if (!a.has(one)) yield one;
}
