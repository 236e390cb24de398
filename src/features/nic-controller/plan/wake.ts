import type { NicStatus } from "#kube/nic";
import { type ClaimRecord, keyOf, nicsOf } from "./record.ts";
import { endsByRelease } from "./retry.ts";

/** Claims that wait for any port and are woken when ports are given back; one claim has given them back. */
const MAX_WOKEN = 16;

/**
 * NICs of a claim have given back their ports, which others may wait for. Returns which NICs are tried again: those that want just these addresses, and of those
 * that wait for any port of the tenant or the project some that have waited longest. All others try again after their pauses. Pure.
 */
export function wakesBy(
  { claim, namespace }: ClaimRecord,
  nics: readonly NicStatus[],
  records: Iterable<ClaimRecord>,
): (nic: NicStatus, record: ClaimRecord) => boolean {
  const freed = freedBy(claim.spec.nics, nics);
  const wantsFreed = ({ claim: other }: ClaimRecord, { name }: NicStatus): boolean => {
    const { ip, mac, portID } = other.spec.nics.find((one) => one.name === name) ?? {};
    return [ip, mac, portID].some((one) => one !== undefined && freed.has(one));
  };
  const { provider, projectID, vpc } = claim.spec;
  const wantsAny = ({ claim: { spec }, namespace: where }: ClaimRecord, { reason }: NicStatus): boolean => {
    if (reason === "QuotaExceeded") return true;
    if (reason !== "ProviderQuota" && reason !== "SubnetFull") return false;
    return spec.provider === provider && ((spec.projectID ?? spec.vpc) === (projectID ?? vpc) || where === namespace);
  };
  const waiting = [...records]
    .filter((record) => record.status.phase !== "Releasing" && nicsOf(record).some((nic) => wantsAny(record, nic)))
    .sort((one, other) => dueAt(one) - dueAt(other))
    .slice(0, MAX_WOKEN);
  const some = new Set(waiting.map(keyOf));
  return (nic, record) => {
    if (record.status.phase === "Releasing" || !endsByRelease(nic.reason)) return false;
    return (some.has(keyOf(record)) && wantsAny(record, nic)) || wantsFreed(record, nic);
  };
}

/** The addresses, MACs and ids of ports that NICs have given back. */
function freedBy(
  wishes: ClaimRecord["claim"]["spec"]["nics"],
  nics: readonly NicStatus[],
): ReadonlySet<string | undefined> {
  const wanted = wishes.filter((wish) => nics.some(({ name }) => name === wish.name));
  return new Set([
    ...nics.flatMap(({ ips = [], mac, portID }) => [...ips.map(({ ip }) => ip), mac, portID]),
    // A port need not be recorded.
    ...wanted.flatMap(({ ip, mac, portID }) => [ip, mac, portID]),
  ]);
}

/** When the first NIC of a claim is tried again, in milliseconds since the epoch: those that are tried earliest have waited longest. */
function dueAt(record: ClaimRecord): number {
  const times = nicsOf(record).flatMap(({ nextRetryAt }) =>
    nextRetryAt === undefined ? [] : [Date.parse(nextRetryAt)],
  );
  return Math.min(...times);
}
