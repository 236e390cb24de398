import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import {
  type Draft,
  findObject,
  isKubeError,
  type KubeApi,
  KubeConfigError,
  KubeError,
  type Lease,
  resources,
} from "#kube/client";
import { LEASE_DURATION_MS, LEASE_RENEW_MS, leaseName } from "./names.ts";

/** Timeout of a request, in milliseconds: much less than the Lease lasts. */
const REQUEST_TIMEOUT_MS = 5000;

export interface ServerLeaseOptions {
  readonly serverID: string;
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** The Lease by which agents count this server (docs/spec/tunnel.md#11). */
export class ServerLease {
  readonly #api: Pick<KubeApi, "get" | "create" | "replace" | "delete">;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #health: HealthPart;
  readonly #options: ServerLeaseOptions;
  readonly #name: string;

  /** Throws `ConfigError` for a server id that cannot be part of a name. */
  constructor(
    deps: {
      readonly api: Pick<KubeApi, "get" | "create" | "replace" | "delete">;
      readonly clock: Clock;
      readonly log: Logger;
      /** The part of the health that is ok while the Lease is renewed. */
      readonly health: HealthPart;
    },
    options: ServerLeaseOptions,
  ) {
    this.#api = deps.api;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#health = deps.health;
    this.#options = options;
    this.#name = leaseName(options.serverID);
  }

  /** Renews the Lease until the signal aborts. Failures are logged and tried again. The Lease stays after the abort: see {@link remove}. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const renew = async (): Promise<void> => {
      await this.#renew(signal);
      this.#health.ok();
    };
    const onFailure = (error: Error): void => {
      this.#health.degraded(error);
      this.#log.warn("cannot renew the Lease", { lease: this.#name, reason: describeError(error) });
    };
    // If another client has written the Lease between our read and our write, the Lease is read again at once.
    const retryAfterMs = (error: Error): number | undefined =>
      isKubeError(error, "conflict", "already-exists") ? 0 : undefined;
    const backoff = new Backoff({ initialMs: 1000, maxMs: LEASE_RENEW_MS });
    await repeat(renew, { signal, clock: this.#clock, everyMs: LEASE_RENEW_MS, backoff, onFailure, retryAfterMs });
  }

  /** Deletes the Lease, if it exists. A failure is logged; the Lease then expires by itself. */
  async remove({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { namespace } = this.#options;
    try {
      await this.#api.delete(
        resources.leases,
        { namespace, name: this.#name },
        { signal, timeoutMs: REQUEST_TIMEOUT_MS },
      );
    } catch (error) {
      if (isKubeError(error, "not-found")) return;
      if (!signal.aborted && !(error instanceof KubeError || error instanceof KubeConfigError)) throw error;
      this.#log.warn("cannot delete the Lease of this server; it will expire", {
        lease: this.#name,
        reason: describeError(error),
      });
    }
  }

  async #renew(signal: AbortSignal): Promise<void> {
    const { namespace } = this.#options;
    const options = { signal, timeoutMs: REQUEST_TIMEOUT_MS };
    const found = await findObject(this.#api, resources.leases, { namespace, name: this.#name }, options);
    if (found === undefined) {
      await this.#api.create(resources.leases, this.#draft(undefined), options);
      this.#log.info("Lease created", { lease: `${namespace}/${this.#name}` });
    } else {
      await this.#api.replace(resources.leases, this.#draft(found), options);
    }
  }

  #draft(found: Lease | undefined): Draft<Lease> {
    const now = microTime(this.#clock.now());
    const { serverID, namespace, labels } = this.#options;
    const ours = found?.spec?.holderIdentity === serverID;
    return {
      metadata: {
        ...found?.metadata,
        name: this.#name,
        namespace,
        labels: { ...found?.metadata.labels, ...labels },
      },
      spec: {
        ...found?.spec,
        holderIdentity: serverID,
        leaseDurationSeconds: LEASE_DURATION_MS / 1000,
        acquireTime: (ours ? found?.spec?.acquireTime : undefined) ?? now,
        renewTime: now,
      },
    };
  }
}

/** The time as Kubernetes' MicroTime. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace("Z", "000Z");
}
