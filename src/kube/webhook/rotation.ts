import type { Clock } from "#base/clock";
import { type Logger, Repeats } from "#base/log";
import { findObject, type KubeApi, type KubeObject, type ResourceType, resources } from "#kube/client";
import { WebhookError } from "./admission.ts";
import type { KeyPair } from "./certificates.ts";
import { type CertificateNames, judgeCertificate, renewCertificate, type ServingCertificate } from "./rotation-plan.ts";

/** The shortest time between two renewals by this process, even if another program damages the Secret, in milliseconds. */
const MIN_RENEWAL_MS = 60_000;
/** The shortest time between two writes of one configuration by this process, even if another program writes it too, in milliseconds. */
const MIN_INJECTION_MS = 5_000;
/** The state is compared at least this often, in milliseconds. */
const COMPARE_MS = 3_600_000;

type WebhookConfiguration = KubeObject & {
  webhooks?: { name: string; clientConfig: { caBundle?: string } }[];
};

/** The Secret with the certificates, and the webhook configurations that must trust them. */
export interface RotationOptions {
  readonly secret: { readonly namespace: string; readonly name: string };
  readonly names: CertificateNames;
  /** Names of webhook configurations. A configuration that does not exist is skipped. */
  readonly mutating: string;
  readonly validating: string;
}

/** Callbacks of a {@link CertificateRotation}. */
export interface RotationEvents {
  /**
   * Called for each new pair, when it must be served: after the API servers' configurations have its authority, or at once if no pair was
   * served before. `refreshed`: it replaces a pair that this process served, or this process has made it.
   */
  readonly onPair: (pair: KeyPair, state: { readonly refreshed: boolean }) => void;
  /** A new certificate was stored by this process. */
  readonly onRenewed?: () => void;
}

/**
 * Keeps a webhook's certificate in a Secret, and its authority in the webhook configurations (docs/spec/pod-network.md#2.6). Any number of
 * replicas may run it: a write of a state that another replica has changed is refused by the API server, and the next pass uses the state
 * that the other replica has stored.
 */
export class CertificateRotation {
  readonly #deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock };
  readonly #options: RotationOptions;
  readonly #events: RotationEvents;
  readonly #repeats = new Repeats();
  /** When this process last wrote, by object, milliseconds of the monotonic clock. */
  readonly #written = new Map<string, number>();
  #served: KeyPair | undefined;

  constructor(
    deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock },
    options: RotationOptions,
    events: RotationEvents,
  ) {
    this.#deps = deps;
    this.#options = options;
    this.#events = events;
  }

  /**
   * One pass: renews the certificate if necessary, writes its authority into the configurations, and serves it. Writes nothing if the state
   * is right. Rejects with `KubeError` (`conflict`: another replica was faster) and {@link WebhookError} `no-secret`.
   */
  async sync({ signal }: { readonly signal: AbortSignal }): Promise<{ readonly requeueAfterMs: number }> {
    const { clock } = this.#deps;
    const certificate = await this.#stored(signal);
    if ("retryInMs" in certificate) return { requeueAfterMs: certificate.retryInMs };
    // Without any pair, a handshake fails: so a certificate that is not trusted yet does no harm.
    if (this.#served === undefined) this.#serve(certificate);
    let nextMs = Math.min(COMPARE_MS, Math.max(1000, certificate.renewAt - clock.now()));
    let isTrusted = true;
    const { mutating, validating } = this.#options;
    for (const [type, name] of [
      [resources.mutatingWebhookConfigurations, mutating],
      [resources.validatingWebhookConfigurations, validating],
    ] as const) {
      const waitMs = await this.#inject(
        type as unknown as ResourceType<WebhookConfiguration>,
        name,
        certificate,
        signal,
      );
      nextMs = Math.min(nextMs, waitMs ?? COMPARE_MS);
      isTrusted &&= waitMs === undefined;
    }
    // The pair that is served now stays trusted: bundles keep older authorities.
    if (isTrusted) this.#serve(certificate);
    return { requeueAfterMs: nextMs };
  }

  /** The certificate of the secret, renewed if it must be. */
  async #stored(
    signal: AbortSignal,
  ): Promise<
    (ServingCertificate & { readonly renewAt: number; readonly made: boolean }) | { readonly retryInMs: number }
  > {
    const { api, log, clock } = this.#deps;
    const { secret: at, names } = this.#options;
    const secret = await findObject(api, resources.secrets, at, { signal });
    if (secret === undefined) {
      throw new WebhookError(
        "no-secret",
        `Secret ${at.namespace}/${at.name} does not exist, so a certificate cannot be stored: create an empty Secret of this name (deploy/pods has it)`,
      );
    }
    const stored = read(secret.data ?? {});
    const now = clock.now();
    const state = judgeCertificate(stored, names, now);
    if (state.isGood) {
      this.#repeats.forget("renewal");
      return { ...(stored as ServingCertificate), renewAt: state.renewAt, made: false };
    }
    const waitMs = this.#waitFor("secret", MIN_RENEWAL_MS);
    if (waitMs > 0) {
      if (this.#repeats.isNew("renewal", state.why)) {
        log.warn(
          "the webhook's certificate is bad again soon after its renewal: find and stop the other program that writes the Secret",
          {
            secret: at.name,
            why: state.why,
            retryInMs: waitMs,
          },
        );
      }
      return { retryInMs: waitMs };
    }
    const fresh = renewCertificate(stored, names, now);
    // Coil stores the key of the authority too; it is not needed any more, and keeping it is dangerous.
    const { "ca.key": _unused, ...others } = secret.data ?? {};
    const data = {
      ...others,
      "tls.crt": encode(fresh.cert),
      "tls.key": encode(fresh.key),
      "ca.crt": encode(fresh.ca),
    };
    await api.replace(resources.secrets, { ...secret, data }, { signal });
    this.#written.set("secret", clock.monotonic());
    log.info("webhook certificate renewed", { secret: at.name, why: state.why });
    this.#events.onRenewed?.();
    const renewed = judgeCertificate(fresh, names, now);
    return { ...fresh, renewAt: renewed.isGood ? renewed.renewAt : now + COMPARE_MS, made: true };
  }

  /**
   * Writes the authorities into the webhook configurations. Returns the milliseconds until it may write again if it wrote a moment ago;
   * `undefined`: all configurations have the authorities.
   */
  async #inject(
    type: ResourceType<WebhookConfiguration>,
    name: string,
    { ca }: ServingCertificate,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const { api, log, clock } = this.#deps;
    const found = await findObject(api, type, { name }, { signal });
    if (found === undefined) {
      if (this.#repeats.isNew(name, "absent"))
        log.info("webhook configuration not found; its CA bundle cannot be set", { kind: type.kind, name });
      return undefined;
    }
    this.#repeats.forget(name);
    const caBundle = encode(ca);
    const { webhooks = [] } = found;
    if (webhooks.every(({ clientConfig }) => clientConfig.caBundle === caBundle)) return undefined;
    const key = `${type.kind}/${name}`;
    const waitMs = this.#waitFor(key, MIN_INJECTION_MS);
    if (waitMs > 0) return waitMs;
    const trusting = webhooks.map((hook) => ({ ...hook, clientConfig: { ...hook.clientConfig, caBundle } }));
    await api.replace(type, { ...found, webhooks: trusting }, { signal });
    this.#written.set(key, clock.monotonic());
    log.info("CA bundle written to a webhook configuration", { kind: type.kind, name });
    return undefined;
  }

  #serve(certificate: ServingCertificate & { readonly made: boolean }): void {
    const { cert, key, made } = certificate;
    const before = this.#served;
    if (before?.cert === cert && before.key === key) return;
    this.#served = { cert, key };
    this.#events.onPair({ cert, key }, { refreshed: made || before !== undefined });
  }

  /** The milliseconds until this process may write the object again. */
  #waitFor(key: string, leastMs: number): number {
    const last = this.#written.get(key);
    return last === undefined ? 0 : Math.max(0, last + leastMs - this.#deps.clock.monotonic());
  }
}

function read(data: Readonly<Record<string, string>>): Partial<ServingCertificate> {
  const text = (key: string): string | undefined =>
    data[key] === undefined ? undefined : Buffer.from(data[key], "base64").toString("utf8");
  const [cert, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(text);
  return {
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(ca === undefined ? {} : { ca }),
  };
}

function encode(text: string): string {
  return Buffer.from(text, "utf8").toString("base64");
}
