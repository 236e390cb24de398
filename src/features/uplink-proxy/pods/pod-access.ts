import type { IpAddress } from "#base/ip";
import { Loop } from "#base/reconcile";
import type { ListenerSettings, Settings } from "#base/uplink-model";
import { formatHostPort } from "#wire/http-connect";
import { CA_CONFIG_MAP, type CdiWanted, importProxy, withCredentials } from "../cdi/index.ts";
import { Secrets, type SecretsDeps } from "../policy/index.ts";
import type { PodSecrets } from "../proxy/index.ts";

/** The listener for pods, if the settings have one. */
export function podListener(settings: Settings): ListenerSettings | undefined {
  return settings.listeners.find(({ role }) => role === "pod");
}

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

  /** The wanted CDI object; `undefined` until the secrets exist. */
  wanted(): CdiWanted | undefined {
    const settings = this.#options.settings();
    const listener = podListener(settings);
    if (listener === undefined) return undefined;
    const ranges = { podCIDRs: settings.routing.podCIDRs, serviceCIDRs: settings.routing.serviceCIDRs };
    const isSecure = listener.tls !== "off";
    const at = formatHostPort({ host: listener.address.toString(), port: listener.port });
    const url = `${isSecure ? "https" : "http"}://${at}`;
    if (listener.auth === "none" && !isSecure) return { proxy: importProxy(url, ranges) };
    const [token] = this.tokens ?? [];
    const caPem = this.#secrets?.kept.certificate;
    if (token === undefined || caPem === undefined) return undefined;
    const withToken = withCredentials(url, token);
    if (!isSecure) return { proxy: importProxy(withToken, ranges) };
    return { proxy: importProxy(withToken, { ...ranges, trustedCAProxy: CA_CONFIG_MAP.name }), caPem };
  }

  /** The CDI object has the certificate: from now on TLS is required. */
  published({ caPem }: CdiWanted): void {
    this.#isPublished = caPem !== undefined;
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
    const address = podListener(this.#options.settings())?.address;
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
