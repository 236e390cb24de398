import { ProviderError, type VpcPort } from "#cloud/vpc";
import { restored, withoutPort } from "../../plan/nic.ts";
import { planRelease, type ReleasePlan, recordedPorts } from "../../plan/plan-release.ts";
import { nicsOf } from "../../plan/record.ts";
import { type NicFault, retryDelayMs } from "../../plan/retry.ts";
import type { PortWork } from "./work.ts";

/** The pause between look-ups of ports of requests whose end is not known, in milliseconds. */
const RELEASE_CHECK_MS = 3000;

/** The result of a release. */
export interface ReleaseEnd {
  /** The pause before the next attempt, in milliseconds; `undefined`: nothing is left, and no request can make anything any more. */
  readonly againAfterMs: number | undefined;
  /** True: ports were given back, which others may wait for. */
  readonly hasFreed: boolean;
}

/** Deletes the ports that were made for a claim, and gives users' ports back (docs/spec/vpc-nics.md#5.7). Failures are in the record afterwards. */
export async function release(work: PortWork): Promise<ReleaseEnd> {
  work.touch();
  const { deps } = work;
  const { uid } = work.record;
  if (deps.cluster.pod(uid) !== undefined && work.pod === undefined) {
    deps.log.warn("a claim is a copy of another namespace's, so it has no ports", { claim: uid });
    return { againAfterMs: undefined, hasFreed: false };
  }
  let plan: ReleasePlan;
  try {
    plan = await planned(work);
  } catch (error) {
    work.fail(work.faultOf(error));
    return { againAfterMs: pauseOf(work), hasFreed: false };
  }
  if (plan.foreign.length > 0)
    deps.log.warn("ports of another namespace are left", { claim: uid, ports: plan.foreign });
  const { gone, failures } = await apply(plan, work);
  noteDeleted(gone, work);
  // What had no answer may be done, and a port that is not recorded is not found again then.
  const mayBeDone = failures.some((error) => error instanceof ProviderError && error.isAmbiguous);
  const hasFreed = gone.size > 0 || plan.lent.length > 0 || mayBeDone;
  if (failures.length > 0) {
    work.fail(longest(failures.map((error) => work.faultOf(error))));
    return { againAfterMs: pauseOf(work), hasFreed };
  }
  return { againAfterMs: doubtOf(work), hasFreed };
}

async function planned(work: PortWork): Promise<ReleasePlan> {
  const { deps, provider, record, options } = work;
  const found = await deps.requests.find(provider, record.uid, options);
  const ids = recordedPorts(record);
  const absent = ids.filter((id) => !found.some((port) => port.id === id));
  const others = absent.length === 0 ? [] : [...(await provider.getPorts(absent, options)).values()];
  const recorded: readonly VpcPort[] = [...found.filter(({ id }) => ids.includes(id)), ...others];
  return planRelease(record, { found, recorded, isHeld: (id) => deps.ledger.holderOf(id, record) !== undefined });
}

async function apply(
  { deletes, lent }: ReleasePlan,
  { provider, options }: PortWork,
): Promise<{ readonly gone: ReadonlySet<string>; readonly failures: readonly unknown[] }> {
  const gone = new Set<string>();
  const ends = await Promise.allSettled([
    ...Array.from(deletes, async (id) => {
      await provider.deletePort(id, options);
      gone.add(id);
    }),
    ...lent.map((nic) => provider.releasePort(nic.portID ?? "", restored(nic), options)),
  ]);
  return { gone, failures: ends.flatMap((end) => (end.status === "rejected" ? [end.reason] : [])) };
}

/** NICs whose ports a release has deleted have none any more, so that a later attempt, of the next leader too, asks for the others alone. */
function noteDeleted(ids: ReadonlySet<string>, work: PortWork): void {
  const { podName, podUID } = work.record.claim.spec;
  const pod = { metadata: { name: podName, namespace: work.record.namespace, uid: podUID, resourceVersion: "" } };
  work.change((nic) => {
    const { name, portID } = nic;
    if (portID === undefined || !ids.has(portID)) return nic;
    work.deps.observer.event(pod, { type: "Normal", reason: "PortDeleted", note: `${name}: port ${portID}` });
    return withoutPort(nic);
  });
}

/** The one of several failures with the longest pause: all ports are tried again together, so several failures are one attempt that has failed. */
function longest(faults: readonly NicFault[]): NicFault {
  const pauseMs = (fault: NicFault): number => retryDelayMs(fault, 1, 0);
  return faults.reduce((one, other) => (pauseMs(other) > pauseMs(one) ? other : one));
}

/** The time until the first NIC that has failed may be tried again, in milliseconds. */
function pauseOf({ deps, record }: PortWork): number {
  const now = deps.clock.now();
  const pauses = nicsOf(record)
    .map(({ nextRetryAt }) => Date.parse(nextRetryAt ?? "") - now)
    .filter((ms) => ms > 0);
  return pauses.length === 0 ? RELEASE_CHECK_MS : Math.min(...pauses);
}

/** A request may still make a port, or take a user's: nobody would delete the one or give back the other once the claim is gone. */
function doubtOf({ deps, record }: PortWork): number | undefined {
  const isInDoubt = record.doubtful.size > 0 || record.mayHaveSeconds;
  const doubtMs = !isInDoubt ? 0 : record.doubtUntil - deps.clock.monotonic();
  return doubtMs > 0 ? Math.min(doubtMs, RELEASE_CHECK_MS) : undefined;
}
