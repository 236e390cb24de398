import { Deferred } from "#base/async";
import { isAbortError } from "#base/errors";
import { isApiFailure, isKubeError, type KubeApi } from "#kube/client";
import { type LeaderElectionOptions, LeaderElector, type LeadershipEnd } from "./elector.ts";

/** The lease of a leader. */
export interface HeldLease {
  /** True if no other candidate can have the lease yet; see {@link LeaderElector.isFresh}. For work whose order with a successor's matters. */
  readonly isFresh: boolean;
}

/** The work of a leader, and its end. */
export interface LeaderWork {
  /** Runs while we lead; its signal aborts when leadership ends, and no API call may follow that. */
  readonly lead: (signal: AbortSignal, lease: HeldLease) => Promise<void>;
  /** Called when leadership has ended for any reason, and after `lead` has ended. */
  readonly onStopped?: (why: LeadershipEnd) => void;
  /** Ends the candidacy. */
  readonly signal: AbortSignal;
}

/**
 * Waits to become leader, then runs `lead` until it ends (`work-done`), leadership is `lost`, or the signal aborts
 * (`stopped`). Leads at most once: a program that lost the lease should end and be started again, because its memory may be outdated.
 * Rejects with what `lead` throws, after releasing the lease.
 */
export async function runAsLeader(
  api: Pick<KubeApi, "get" | "create" | "replace">,
  options: LeaderElectionOptions,
  work: LeaderWork,
): Promise<LeadershipEnd> {
  const elector = new LeaderElector(api, options);
  try {
    await elector.acquire(work.signal);
  } catch (error) {
    if (work.signal.aborted) return "stopped";
    throw error;
  }
  let end: LeadershipEnd = "stopped";
  try {
    end = await leadAndRenew(elector, work);
    return end;
  } finally {
    if (options.releaseOnStop !== false) await release(elector, options);
    work.onStopped?.(end);
  }
}

async function leadAndRenew(elector: LeaderElector, work: LeaderWork): Promise<LeadershipEnd> {
  const stop = new AbortController();
  const onAbort = (): void => stop.abort(work.signal.reason);
  if (work.signal.aborted) onAbort();
  work.signal.addEventListener("abort", onAbort, { once: true });
  const lost = new Deferred<"lost" | "stopped">();
  const renewing = elector.renew(stop.signal).then(
    () => lost.resolve("lost"),
    (error: unknown) => (stop.signal.aborted ? lost.resolve("stopped") : lost.reject(error)),
  );
  const leading = work.lead(stop.signal, elector).then(
    () => "work-done" as const,
    (error: unknown) => {
      if (stop.signal.aborted && (isAbortError(error) || error === stop.signal.reason)) return "stopped" as const;
      throw error;
    },
  );
  try {
    const first = await Promise.race([lost.promise, leading]);
    stop.abort(new DOMException("this process is no longer the leader", "AbortError"));
    await leading;
    return work.signal.aborted ? "stopped" : first;
  } finally {
    stop.abort(new DOMException("this process is no longer the leader", "AbortError"));
    work.signal.removeEventListener("abort", onAbort);
    await renewing;
  }
}

/** A lease that cannot be released expires by itself. */
async function release(elector: LeaderElector, options: LeaderElectionOptions): Promise<void> {
  try {
    await elector.release();
  } catch (error) {
    if (!isApiFailure(error)) throw error;
    if (!isKubeError(error, "conflict", "not-found")) options.onError?.(error);
  }
}
