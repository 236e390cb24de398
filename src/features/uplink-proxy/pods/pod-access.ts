import type { IpAddress } from "#base/ip";
import { Loop } from "#base/reconcile";
import type { Settings } from "#base/uplink-model";
import { Secrets, type SecretsDeps } from "../policy/index.ts";
import type { PodSecrets } from "../proxy/index.ts";

/** Interval at which the cluster's secret and the files are read, milliseconds (docs/spec/uplink-proxy.md#9.1.1). */
const RECHECK_MS = 60_000;

/**
 * Token and certificate of the pod listener, and whether the certificate was published. They do not exist while the settings have no such
 * listener; a reload may add or remove it.
 */
export class PodAccess implements PodSecrets {
  readonly #deps: SecretsDeps;
  readonly #options: PodAccessOptions;
  readonly #loop: Loop;
  #secrets: { readonly address: IpAddress; readonly kept: Secrets } | undefined;
  #isPublished = false;

  constructor(deps: SecretsDeps, options: PodAccessOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#loop = new Loop({ everyMs: RECHECK_MS, clock: deps.clock });
  }

  get tokens(): readonly string[] | undefined {
    return this.#secrets?.kept.tokens;
  }

  get secureContext(): PodSecrets["secureContext"] {
    return this.#secrets?.kept.secureContext;
  }

  get isPublished(): boolean {
    return this.#isPublished;
  }

  /** The certificate, PEM; `undefined` until it exists. */
  get certificate(): string | undefined {
    return this.#secrets?.kept.certificate;
  }

  /** Clients have the URL; with the certificate TLS is required from now on. */
  published(hasCertificate: boolean): void {
    this.#isPublished = hasCertificate;
  }

  /** The listener, or the client of the API server, may have been added: checks at once. */
  settingsChanged(): void {
    this.#loop.wake("settings");
  }

  /** Keeps token and certificate up to date until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#loop.run(() => this.#sync(), { signal });
  }

  async #sync(): Promise<void> {
    const address = this.#options.settings().listeners.find(({ role }) => role === "pod")?.address;
    if (address === undefined) {
      this.#secrets = undefined;
      return;
    }
    if (this.#secrets?.address.equals(address) !== true) {
      this.#secrets = { address, kept: new Secrets(this.#deps, { dir: this.#options.dir, address }) };
    }
    await this.#secrets.kept.sync();
  }
}

/** The directory of the secrets, and the present settings. */
export interface PodAccessOptions {
  readonly dir: string;
  readonly settings: () => Settings;
}
