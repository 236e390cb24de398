import type { ByteString, ElementBatch } from "#kernel/nft-elements";
import type { Dirty } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import { type Held, PLAIN_SETS } from "./held.ts";
import type { Desired } from "./types.ts";

/** What the sets of keys alone gain before the front ends change, and lose after it. */
export interface SetChanges {
  readonly add: ElementBatch;
  readonly remove: ElementBatch;
  /** What they then hold. */
  readonly next: ReadonlyMap<string, Set<ByteString>>;
}

/** Pure but for the batches, which are new ones. `dirty`: look at these keys alone; `undefined`: at all. */
export function changeSets(
  held: Pick<Held, "sets">,
  desired: Desired,
  dirty: Dirty | undefined,
  batches: { readonly add: ElementBatch; readonly remove: ElementBatch },
): SetChanges {
  const wanted = {
    [SETS.clusterIps]: [desired.services.clusterIPs, dirty?.clusterIPs],
    [SETS.hairpin]: [desired.services.hairpins, dirty?.hairpins],
    [SETS.nodePortIps]: [desired.nodePortIPs, undefined],
  } as const;
  const { add, remove } = batches;
  const next = new Map<string, Set<ByteString>>();
  for (const name of PLAIN_SETS) {
    const [want, touched] = wanted[name];
    // Copied only where all of it is looked at anyway: a partial sync stays as small as its change.
    const known = held.sets.get(name) ?? new Set<ByteString>();
    const result = touched === undefined ? new Set(known) : known;
    for (const key of touched ?? union(known, want)) {
      if (want.has(key) && !result.has(key)) {
        add.add(name, key);
        result.add(key);
      } else if (!want.has(key) && result.delete(key)) {
        remove.delete(name, key);
      }
    }
    next.set(name, result);
  }
  return { add, remove, next };
}

function* union<T>(a: ReadonlySet<T>, b: ReadonlySet<T>): Generator<T> {
  yield* a;
  for (const one of b) if (!a.has(one)) yield one;
}
