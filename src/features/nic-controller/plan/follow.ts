import { isEqual } from "#base/collections";
import type { NamedNic } from "#kube/nic";
import type { PodView, PodWish, WantedNics } from "../world.ts";
import { groupsOf, settled } from "./nic.ts";
import { added, planNics } from "./plan-nics.ts";
import { portsOf } from "./quota.ts";
import { type ClaimRecord, isOver, nicsOf, withoutPause } from "./record.ts";

/** The change of a claim whose pod asks for other NICs by now. */
export interface FollowPlan {
  /** The NICs that the claim gets; `undefined`: it keeps those that it has. */
  readonly next: readonly NamedNic[] | undefined;
  /** The reason why it does not get all that its pod asks for; empty: it does. */
  readonly refusal: string;
}

/** The rules that decide about other NICs. */
export interface FollowRules {
  readonly wish: PodWish;
  /** The faults of a change of NICs; empty: it is allowed. */
  readonly change: (before: readonly NamedNic[], after: readonly NamedNic[]) => readonly string[];
  /** The reason why the policy does not allow a wish; `undefined`: it does. */
  readonly refused: (wish: WantedNics) => string | undefined;
  /** The reason why the quota does not allow this number of ports; `undefined`: it does. */
  readonly quota: (ports: number) => string | undefined;
}

/** True if a claim follows its pod: at the end of either nothing is changed any more. Pure. */
export function mayFollow({ claim, staleAs }: ClaimRecord, pod: PodView | undefined): pod is PodView {
  if (pod === undefined || isOver(pod) || pod.metadata.deletionTimestamp !== undefined) return false;
  return claim.metadata.deletionTimestamp === undefined && pod.metadata.resourceVersion !== staleAs;
}

/** The NICs that a claim should get, if others than it has, and why not all that its pod asks for (docs/spec/vpc-nics.md#10). Pure. */
export function planFollow(record: ClaimRecord, { wish, change, refused, quota }: FollowRules): FollowPlan {
  const { nics: before, vpc } = record.claim.spec;
  const keep = (refusal: string): FollowPlan => ({ next: undefined, refusal });
  if (wish.kind === "faulty") return keep(wish.faults.map(({ field, message }) => `${field}: ${message}`).join("; "));
  if (wish.kind !== "wanted") return keep("");
  if (wish.vpc !== vpc) return keep("vpc: may not change");
  const planned = planNics(before, nicsOf(record), wish.nics);
  if (planned === undefined) return keep("");
  const faults = change(before, planned);
  if (faults.length > 0) return keep(faults.join("; "));
  const news = added(before, planned);
  if (news.length === 0) return { next: planned, refusal: "" };
  const why = refused({ ...wish, nics: planned }) ?? quota(portsOf({ nics: planned, shown: nicsOf(record) }));
  if (why === undefined) return { next: planned, refusal: "" };
  // What is taken away is taken away all the same.
  const kept = planned.filter(({ name }) => !news.includes(name));
  return { next: isEqual(kept, before) ? undefined : kept, refusal: why };
}

/** The record of a claim after its NICs were replaced; `before` is the record that was there, with the claim's former NICs. Pure. */
export function followed(record: ClaimRecord, before: ClaimRecord, next: readonly NamedNic[]): Partial<ClaimRecord> {
  const old = before.claim.spec.nics;
  const gone = added(next, old);
  const changed = new Set(
    next.flatMap((nic) => {
      const same = old.find(({ name }) => name === nic.name);
      return same === undefined || isEqual(groupsOf(same), groupsOf(nic)) ? [] : [nic.name];
    }),
  );
  return {
    // A port of a NIC of this name may be there from before.
    isLookedUp: record.isLookedUp && added(old, next).length === 0,
    status: {
      ...record.status,
      nics: nicsOf(before).map((nic) => {
        // Nobody waits for the next attempt of what is not wanted, or is wanted otherwise.
        if (gone.includes(nic.name)) return { ...settled(nic), state: "InProgress" as const };
        return changed.has(nic.name) ? withoutPause(nic) : nic;
      }),
    },
  };
}
