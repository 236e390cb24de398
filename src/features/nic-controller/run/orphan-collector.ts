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
  /** True if the id is the cluster's own uid. Default false. */
  readonly isUnique?: boolean | undefined;
  /** Returns true if this process has had the claim of a pod. Default: it has had none. */
  readonly wasOwn?: ((namespace: string, podUID: string) => boolean) | undefined;
  readonly minAgeMs: number;
  /** True if orphans are only logged. */
  readonly isDryRun: boolean;
}

/** The outcome for an orphan: it was deleted, or would be, unless there is an error or a reason to leave it. */
export interface OrphanEnd {
  readonly port: VpcPort;
  readonly error?: ProviderError;
  /** The reason why it is not deleted: it may be in use. */
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
  /** The orphans that could not be deleted, by provider, each with the last pass in which its deletion failed. */
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
    const { log } = this.#deps;
    const ports = await this.#portsOf(provider, options);
    const failures = new Map<string, number>();
    const leftBefore = this.#left.get(provider.name);
    const left = new Set<string>();
    this.#passes += 1;
    const inOrder = this.#inOrder(provider.name, [...ports.values()], failures);
    this.#left.set(provider.name, left);
    let deleted = 0;
    let failed = 0;
    for (const orphan of inOrder) {
      if (deleted >= MAX_DELETES || failed >= MAX_FAILURES) return;
      const port = ports.get(orphan.id);
      if (port === undefined) continue;
      const why = leftBecause(port, this.#options.wasOwn?.(orphan.namespace, orphan.podUID) ?? false);
      if (why !== undefined) {
        left.add(orphan.id);
        if (leftBefore?.has(orphan.id) !== true) log.warn("port without a claim is left", { ...fieldsOf(orphan), why });
        yield { port, left: why };
        continue;
      }
      if (await this.#isWantedAfterAll(orphan, port, options)) continue;
      const error = await this.#delete(orphan, provider, options);
      if (error === undefined) {
        deleted += 1;
        yield { port };
      } else {
        failures.set(orphan.id, this.#passes);
        failed += 1;
        yield { port, error };
      }
    }
  }

  /** The ports that may be of this suite, by their ids. */
  async #portsOf(
    provider: VpcProvider,
    options: { readonly signal: AbortSignal },
  ): Promise<ReadonlyMap<string, VpcPort>> {
    const ports = new Map<string, VpcPort>();
    for await (const port of provider.eachOwned(DEVICE_OWNER, options)) ports.set(port.id, port);
    // Something that detaches a port clears its owner; the tag stays.
    for await (const port of provider.eachTagged(clusterTag(this.#options.clusterId), options))
      ports.set(port.id, port);
    return ports;
  }

  /** The orphans that this pass may delete: those that could not be deleted before come last. Puts these into `failures`. */
  #inOrder(provider: string, ports: readonly VpcPort[], failures: Map<string, number>): readonly Orphan[] {
    const { cluster, clock } = this.#deps;
    const { clusterId, isUnique, minAgeMs } = this.#options;
    const claims = new Set(Array.from(cluster.claims(), ({ metadata }) => metadata.name));
    const isWanted = (uid: string): boolean => claims.has(uid) || isRunning(cluster.pod(uid)?.status);
    const orphans = orphansOf(ports, { clusterId, isUnique, isWanted, now: clock.now(), minAgeMs });
    const suspects = this.#suspects.get(provider) ?? new Set();
    this.#suspects.set(provider, new Set(orphans.map(({ id }) => id)));
    const before = this.#failures.get(provider);
    for (const { id } of orphans) {
      const pass = before?.get(id);
      if (pass !== undefined) failures.set(id, pass);
    }
    this.#failures.set(provider, failures);
    return orphans
      .filter(({ id, isCertain }) => isCertain || suspects.has(id))
      .sort((one, other) => (failures.get(one.id) ?? 0) - (failures.get(other.id) ?? 0));
  }

  /** Deletes an orphan, unless orphans are only logged. Resolves to the refusal of the provider. */
  async #delete(
    orphan: Orphan,
    provider: VpcProvider,
    options: { readonly signal: AbortSignal },
  ): Promise<ProviderError | undefined> {
    const { log, observer } = this.#deps;
    const { isDryRun } = this.#options;
    const what = fieldsOf(orphan);
    log.info(isDryRun ? "port without a claim would be deleted" : "port without a claim is deleted", what);
    if (isDryRun) return undefined;
    try {
      await provider.deletePort(orphan.id, options);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      log.warn("port without a claim cannot be deleted", { ...what, error: error.message });
      return error;
    }
    observer.orphans(1);
    return undefined;
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

/** An orphan in the log. */
function fieldsOf({ id: port, podUID, namespace }: Orphan): Readonly<Record<string, string>> {
  return { port, podUID, namespace };
}
