import { ExpectedError } from "#base/errors";
import { ProviderError, type VpcPort, type VpcProvider } from "#cloud/vpc";
import { findObject, resources } from "#kube/client";
import { nicResources } from "#kube/nic";
import { clusterTag, DEVICE_OWNER, readOwner } from "../plan/identity.ts";
import { leftBecause, type Orphan, orphansOf } from "../plan/orphans.ts";
import type { NicControllerDeps } from "./deps.ts";

/** Ports that one pass deletes at most: a mistake costs no more. */
const MAX_DELETES = 50;
/** Ports that one pass finds it cannot delete, at most: each costs two requests to the API server and one to the provider. */
const MAX_FAILURES = 100;

export interface OrphanOptions {
  readonly clusterId: string;
  /** Whether the id is the cluster's own uid. Default false. */
  readonly isUnique?: boolean | undefined;
  /** Whether this process has had the claim of a pod. Default: it has had none. */
  readonly wasOwn?: ((namespace: string, podUID: string) => boolean) | undefined;
  readonly minAgeMs: number;
  /** Whether orphans are only logged. */
  readonly isDryRun: boolean;
}

/** What has become of an orphan: it was deleted, or would be, unless there is an error or a reason to leave it. */
export interface OrphanEnd {
  readonly port: VpcPort;
  readonly error?: ProviderError;
  /** Why it is left: it may be in use. */
  readonly left?: string;
}

/**
 * Deletes ports of this cluster that no claim has (docs/spec/vpc-nics.md#5.8), after the API server was asked for claim and pod: at once where the cluster's id is
 * its uid, else what two passes in a row have found.
 */
export class OrphanCollector {
  readonly #deps: Pick<NicControllerDeps, "api" | "cluster" | "observer" | "log" | "clock">;
  readonly #options: OrphanOptions;
  /** Orphans of the last pass, by provider. */
  readonly #suspects = new Map<string, ReadonlySet<string>>();
  /** By provider, the orphans that could not be deleted, and the pass in which that was so last. */
  readonly #failures = new Map<string, Map<string, number>>();
  /** The orphans that are left, by provider; each is logged once. */
  readonly #left = new Map<string, ReadonlySet<string>>();
  #passes = 0;

  constructor(deps: Pick<NicControllerDeps, "api" | "cluster" | "observer" | "log" | "clock">, options: OrphanOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** One pass; returns what {@link each} tells. Rejects as it does. */
  async pass(provider: VpcProvider, options: { readonly signal: AbortSignal }): Promise<readonly OrphanEnd[]> {
    const ends: OrphanEnd[] = [];
    for await (const end of this.each(provider, options)) ends.push(end);
    return ends;
  }

  /**
   * One pass: each port that it has deleted, or would delete, and each that the provider does not delete, which holds up no other: in the next pass it comes
   * after those that were not tried. Caches must have synced.
   * Rejects with other failures of provider and API server.
   */
  async *each(
    provider: VpcProvider,
    options: { readonly signal: AbortSignal },
  ): AsyncGenerator<OrphanEnd, void, undefined> {
    const { cluster, clock, log, observer } = this.#deps;
    const { clusterId, isUnique, minAgeMs, isDryRun, wasOwn = () => false } = this.#options;
    const claims = new Set(Array.from(cluster.claims(), ({ metadata }) => metadata.name));
    const ports = new Map<string, VpcPort>();
    for await (const port of provider.eachOwned(DEVICE_OWNER, options)) ports.set(port.id, port);
    // Something that detaches a port clears its owner; the tag stays.
    for await (const port of provider.eachTagged(clusterTag(clusterId), options)) ports.set(port.id, port);
    const isWanted = (uid: string): boolean => claims.has(uid) || isRunning(cluster.pod(uid)?.status);
    const orphans = orphansOf(ports.values(), { clusterId, isUnique, isWanted, now: clock.now(), minAgeMs });
    const suspects = this.#suspects.get(provider.name) ?? new Set();
    this.#suspects.set(provider.name, new Set(orphans.map(({ id }) => id)));
    this.#passes += 1;
    const before = this.#failures.get(provider.name);
    const failures = new Map(
      orphans.flatMap(({ id }) => (before?.has(id) === true ? [[id, before.get(id) ?? 0] as const] : [])),
    );
    this.#failures.set(provider.name, failures);
    const inOrder = orphans
      .filter(({ id, isCertain }) => isCertain || suspects.has(id))
      .sort((one, other) => (failures.get(one.id) ?? 0) - (failures.get(other.id) ?? 0));
    const leftBefore = this.#left.get(provider.name);
    const left = new Set<string>();
    this.#left.set(provider.name, left);
    let deleted = 0;
    let failed = 0;
    for (const orphan of inOrder) {
      if (deleted >= MAX_DELETES || failed >= MAX_FAILURES) return;
      const port = ports.get(orphan.id);
      if (port === undefined) continue;
      const what = { port: orphan.id, podUID: orphan.podUID, namespace: orphan.namespace };
      const why = leftBecause(port, wasOwn(orphan.namespace, orphan.podUID));
      if (why !== undefined) {
        left.add(orphan.id);
        if (leftBefore?.has(orphan.id) !== true) log.warn("port without a claim is left", { ...what, why });
        yield { port, left: why };
        continue;
      }
      if (await this.#isWantedAfterAll(orphan, port, options)) continue;
      log.info(isDryRun ? "port without a claim would be deleted" : "port without a claim is deleted", what);
      try {
        if (!isDryRun) await provider.deletePort(orphan.id, options);
      } catch (error) {
        if (!(error instanceof ProviderError)) throw error;
        log.warn("port without a claim cannot be deleted", { ...what, error: error.message });
        failures.set(orphan.id, this.#passes);
        failed += 1;
        yield { port, error };
        continue;
      }
      deleted += 1;
      if (!isDryRun) observer.orphans(1);
      yield { port };
    }
  }

  /** One pass of each provider. One that is away, or cannot be opened, is logged and holds up no other. Rejects for bugs, and when the signal has aborted. */
  async passAll(
    providers: { readonly names: () => readonly string[]; readonly get: (name: string) => VpcProvider },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    for (const provider of providers.names()) {
      try {
        await this.pass(providers.get(provider), { signal });
      } catch (error) {
        if (signal.aborted || !(error instanceof ExpectedError)) throw error;
        const { message } = error;
        this.#deps.log.warn("ports without a claim cannot be looked for", { provider, error: message });
      }
    }
  }

  /** A live look: the caches may be behind. */
  async #isWantedAfterAll(
    { podUID, namespace }: Orphan,
    port: VpcPort,
    options: { readonly signal: AbortSignal },
  ): Promise<boolean> {
    const { api } = this.#deps;
    const claim = await findObject(api, nicResources.nicClaims, { namespace, name: podUID }, options);
    if (claim !== undefined) return true;
    const name = readOwner(port.description)?.pod;
    if (name === undefined) return false;
    const pod = await findObject(api, resources.pods, { namespace, name }, options);
    return pod?.metadata.uid === podUID && isRunning(pod.status ?? {});
  }
}

/** A pod that has ended, and whose claim was released, gets no other one. */
function isRunning(status: { readonly phase?: string | undefined } | undefined): boolean {
  return status !== undefined && status.phase !== "Succeeded" && status.phase !== "Failed";
}
