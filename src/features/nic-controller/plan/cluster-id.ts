/** The id of this cluster in the descriptions of its ports. */
export interface ClusterIdentity {
  readonly id: string;
  /** True if the id is the uid of the namespace kube-system, which no other cluster has. */
  readonly isUid: boolean;
  /** A note about the id for the operator; `undefined`: there is none. */
  readonly note: string | undefined;
}

/**
 * The id that a controller works with (docs/spec/vpc-nics.md#5.3): the given one; else that of the claims that are there, as of a release that was told one,
 * so that no port is forgotten; else the uid of the namespace kube-system. `undefined`: nothing says one. `claimed` has the id of each claim. Pure.
 */
export function clusterIdentity({
  given,
  uid,
  claimed,
}: {
  readonly given: string | undefined;
  readonly uid: string | undefined;
  readonly claimed: Iterable<string>;
}): ClusterIdentity | undefined {
  const counts = new Map<string, number>();
  for (const id of claimed) counts.set(id, (counts.get(id) ?? 0) + 1);
  const others = [...counts].filter(([id]) => id !== (given ?? uid)).sort(byCount);
  const named = others.map(([id, count]) => `${id} (${count})`).join(", ");
  if (given !== undefined) {
    const note = `NicClaims have other ids than --cluster-id=${given}: ${named}; ports of those that end are deleted, ports that were lost are not looked for`;
    return { id: given, isUid: given === uid, note: others.length === 0 ? undefined : note };
  }
  const [other] = others;
  // One claim that came from elsewhere, as with a namespace that was restored, does not decide for all.
  if (other !== undefined && other[1] > (uid === undefined ? 0 : (counts.get(uid) ?? 0))) {
    const move =
      uid === undefined
        ? ""
        : `; to move to the cluster's own id, set --cluster-id=${uid} until no NicClaim has another`;
    return { id: other[0], isUid: false, note: `NicClaims have the cluster id ${named}, which is kept${move}` };
  }
  return uid === undefined ? undefined : { id: uid, isUid: true, note: undefined };
}

function byCount([id, count]: readonly [string, number], [other, its]: readonly [string, number]): number {
  return its - count || (id < other ? -1 : 1);
}
