import { ExpectedError } from "#base/errors";
import type { VpcPort, VpcProvider } from "#cloud/vpc";
import { findObject, resources } from "#kube/client";
import { nicResources } from "#kube/nic";
import { clusterTag, DEVICE_OWNER, readOwner } from "../plan/identity.ts";
import { type Orphan, orphansOf } from "../plan/orphans.ts";
import type { NicControllerDeps } from "./deps.ts";

/** Ports that one pass deletes at most: a mistake costs no more. */
const MAX_DELETES = 50;

export interface OrphanOptions {
  readonly clusterId: string;
  readonly minAgeMs: number;
  /** Whether orphans are only logged. */
  readonly isDryRun: boolean;
}

/** Deletes ports of this cluster that no claim has (docs/spec/vpc-nics.md#5.8): what two passes in a row have found, after a live look. */
export class OrphanCollector {
  readonly #deps: Pick<NicControllerDeps, "api" | "cluster" | "observer" | "log" | "clock">;
  readonly #options: OrphanOptions;
  /** Orphans of the last pass, by provider. */
  readonly #suspects = new Map<string, ReadonlySet<string>>();

  constructor(deps: Pick<NicControllerDeps, "api" | "cluster" | "observer" | "log" | "clock">, options: OrphanOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** One pass; returns the ids of the ports that it has deleted, or would delete. Caches must have synced. Rejects with failures of provider and API server. */
  async pass(provider: VpcProvider, options: { readonly signal: AbortSignal }): Promise<readonly string[]> {
    const { cluster, clock, log, observer } = this.#deps;
    const { clusterId, minAgeMs, isDryRun } = this.#options;
    const claims = new Set(Array.from(cluster.claims(), ({ metadata }) => metadata.name));
    const ports = new Map<string, VpcPort>();
    for await (const port of provider.eachOwned(DEVICE_OWNER, options)) ports.set(port.id, port);
    // Something that detaches a port clears its owner; the tag stays.
    for await (const port of provider.eachTagged(clusterTag(clusterId), options)) ports.set(port.id, port);
    const isWanted = (uid: string): boolean => claims.has(uid) || isRunning(cluster.pod(uid)?.status);
    const orphans = orphansOf(ports.values(), { clusterId, isWanted, now: clock.now(), minAgeMs });
    const suspects = this.#suspects.get(provider.name) ?? new Set();
    this.#suspects.set(provider.name, new Set(orphans.map(({ id }) => id)));
    const deleted: string[] = [];
    for (const orphan of orphans.filter(({ id }) => suspects.has(id))) {
      if (deleted.length >= MAX_DELETES) break;
      if (await this.#isWantedAfterAll(orphan, ports.get(orphan.id), options)) continue;
      log.info(isDryRun ? "port without a claim would be deleted" : "port without a claim is deleted", {
        port: orphan.id,
        podUID: orphan.podUID,
        namespace: orphan.namespace,
      });
      if (!isDryRun) {
        await provider.deletePort(orphan.id, options);
        observer.orphans(1);
      }
      deleted.push(orphan.id);
    }
    return deleted;
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
    port: VpcPort | undefined,
    options: { readonly signal: AbortSignal },
  ): Promise<boolean> {
    const { api } = this.#deps;
    const claim = await findObject(api, nicResources.nicClaims, { namespace, name: podUID }, options);
    if (claim !== undefined) return true;
    const name = podOf(port);
    if (name === undefined) return false;
    const pod = await findObject(api, resources.pods, { namespace, name }, options);
    return pod?.metadata.uid === podUID && isRunning(pod.status ?? {});
  }
}

/** A pod that has ended, and whose claim was released, gets no other one. */
function isRunning(status: { readonly phase?: string | undefined } | undefined): boolean {
  return status !== undefined && status.phase !== "Succeeded" && status.phase !== "Failed";
}

function podOf(port: VpcPort | undefined): string | undefined {
  return port === undefined ? undefined : readOwner(port.description)?.pod;
}
