import type { NodeView } from "../world.ts";
import { isDue, leaving, wished } from "./nic.ts";
import { type ClaimWorld, hostOf, type Moment } from "./observe-claim.ts";
import type { ClaimView } from "./plan-claim.ts";
import { type ClaimRecord, deviceLostAt, hasCondition, isLetGo, isOver, nicsOf } from "./record.ts";

/** A node that is not ready for this time is lost, in milliseconds (docs/spec/vpc-nics.md#5.7). */
const NODE_LOST_MS = 300_000;

/** All that decides about the next step of a claim; `record` is one that was {@link observed}, `quota` the reason why the tenant may have no ports. Pure. */
export function claimView(
  record: ClaimRecord,
  world: ClaimWorld & { readonly quota: string | undefined; readonly nodeOf: (name: string) => NodeView | undefined },
  { now, monotonic }: Omit<Moment, "random">,
): ClaimView {
  const { claim, overSince } = record;
  const { pod, quota } = world;
  const nics = nicsOf(record);
  // The cache of pods may be behind that of claims.
  const nodeName = pod?.spec.nodeName ?? record.status.nodeName;
  const nodeIsLost = nodeName !== undefined && isLost(world.nodeOf(nodeName), now);
  const isFree = nodeName === undefined || nodeIsLost;
  const overForMs = overSince === undefined ? 0 : monotonic - overSince;
  return {
    wishes: claim.spec.nics,
    nics: wished(claim.spec.nics, nics),
    leaving: leaving(claim.spec.nics, nics).map((nic) => ({ nic, isUnplugged: isFree || isLetGo(claim, nic.name) })),
    isOriginal: (claim.metadata.generation ?? 1) === 1,
    phase: record.status.phase,
    isDeleted: claim.metadata.deletionTimestamp !== undefined,
    pod: pod === undefined ? undefined : { isOver: isOver(pod), overForMs, nodeName },
    podIsGone: record.podIsGone,
    host: hostOf(record, world).host,
    isPlugged: hasCondition(claim, "Plugged"),
    isUnplugged: hasCondition(claim, "Unplugged"),
    lostAt: deviceLostAt(claim),
    nodeIsLost,
    quota,
    mayHavePort: record.mayHavePort,
    isLookedUp: record.isLookedUp && !nics.some((nic) => record.undeleted.has(nic.name) && isDue(nic, now)),
    now,
  };
}

function isLost(node: NodeView | undefined, now: number): boolean {
  return node === undefined || (node.notReadySince !== undefined && now - node.notReadySince > NODE_LOST_MS);
}
