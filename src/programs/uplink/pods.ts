import { readFile } from "node:fs/promises";
import { Dirty } from "#base/async";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { Logger, Repeats } from "#base/log";
import type { ListenerSettings, Settings } from "#base/uplink-model";
import {
  CA_CONFIG_MAP,
  type CdiWanted,
  type ClusterSecret,
  importProxy,
  type PodSecrets,
  Secrets,
  type SecretsDeps,
  withCredentials,
} from "#features/uplink-proxy";
import { findObject, isKubeError, type KubeApi, resources } from "#kube/client";

/** Key of the Secret that all nodes of a cluster share. */
const SECRET_KEY = "secret";

/** The listener for pods, if the settings have one. */
export function podListener(settings: Settings): ListenerSettings | undefined {
  return settings.listeners.find(({ role }) => role === "pod");
}

/** Asked for the cluster's secret and the files so often, milliseconds (docs/spec/uplink-proxy.md#9.1.1). */
const RECHECK_MS = 60_000;

/**
 * Token and certificate of the listener for pods, and whether those who need the certificate were given it. There are none as long as
 * the settings have no such listener; it may come and go with a reload.
 */
export class PodAccess implements PodSecrets {
  readonly #deps: SecretsDeps;
  readonly #options: PodAccessOptions;
  readonly #dirty: Dirty;
  #secrets: { readonly address: IpAddress; readonly kept: Secrets } | undefined;
  #isPublished = false;

  constructor(deps: SecretsDeps, options: PodAccessOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#dirty = new Dirty(deps.clock);
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

  /** What the CDI object shall say; nothing before there are secrets. */
  wanted(): CdiWanted | undefined {
    const settings = this.#options.settings();
    const listener = podListener(settings);
    if (listener === undefined) return undefined;
    const ranges = { podCIDRs: settings.routing.podCIDRs, serviceCIDRs: settings.routing.serviceCIDRs };
    const url = `http://${listener.address}:${listener.port}`;
    if (listener.auth === "none" && listener.tls === "off") return { proxy: importProxy(url, ranges) };
    const [token] = this.tokens ?? [];
    const certificate = this.#secrets?.kept.certificate;
    if (token === undefined || certificate === undefined) return undefined;
    const proxy = importProxy(withCredentials(url, token), { ...ranges, trustedCAProxy: CA_CONFIG_MAP.name });
    return { proxy, caPem: certificate };
  }

  /** The CDI object says it: whoever comes without TLS from now on has not read it. */
  published({ caPem }: CdiWanted): void {
    this.#isPublished = caPem !== undefined;
  }

  /** The listener may have come, or who can be asked for the cluster's secret. */
  settingsChanged(): void {
    this.#dirty.mark();
  }

  /** Keeps them right until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    while (!signal.aborted) {
      await this.#sync();
      await this.#dirty.wait({ atMostMs: RECHECK_MS, signal });
    }
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

/** Where the secrets lie, and the settings as they are now. */
export interface PodAccessOptions {
  readonly dir: string;
  readonly settings: () => Settings;
}

/** It is asked for each minute: what fails is said once. */
export interface SecretDeps {
  readonly log: Logger;
  readonly repeats: Repeats;
}

/** A file that every node of the cluster has; a node without it stands alone. */
export async function secretFromFile(path: string, { log, repeats }: SecretDeps): Promise<ClusterSecret> {
  try {
    return { kind: "shared", secret: await readFile(path) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return { kind: "standalone" };
    const text = describeError(error);
    if (repeats.isNews(path, text))
      log.warn("cannot read the cluster's secret; what is there stays", { path, error: text });
    return { kind: "unknown" };
  }
}

/** A Secret `NAMESPACE/NAME` of the API server, under key `secret`; a cluster that has none stands for a node alone. */
export async function secretFromApi(
  api: Pick<KubeApi, "get">,
  [namespace, name]: readonly [string, string],
  { log, repeats }: SecretDeps,
  signal: AbortSignal,
): Promise<ClusterSecret> {
  try {
    const found = await findObject(api, resources.secrets, { namespace, name }, { signal });
    const text = found?.data?.[SECRET_KEY];
    return text === undefined ? { kind: "standalone" } : { kind: "shared", secret: Buffer.from(text, "base64") };
  } catch (error) {
    signal.throwIfAborted();
    if (!isKubeError(error)) throw error;
    const text = describeError(error);
    if (repeats.isNews(`${namespace}/${name}`, text)) {
      log.warn("cannot read the cluster's secret; what is there stays", { namespace, name, error: text });
    }
    return { kind: "unknown" };
  }
}
