import { readFile } from "node:fs/promises";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import {
  CA_CONFIG_MAP,
  type CdiWanted,
  type ClusterSecret,
  importProxy,
  type ListenerSettings,
  type PodSecrets,
  Secrets,
  type Settings,
  withCredentials,
} from "#features/uplink";
import { findObject, isKubeError, type KubeApi, resources } from "#kube/client";

/** Key of the Secret that all nodes of a cluster share. */
const SECRET_KEY = "secret";

/** The listener for pods, if the settings have one. */
export function podListener(settings: Settings): ListenerSettings | undefined {
  return settings.listeners.find(({ role }) => role === "pod");
}

/** Token and certificate of the listener for pods, and whether those who need the certificate were given it. */
export class PodAccess implements PodSecrets {
  readonly #secrets: Secrets;
  #isPublished = false;

  constructor(
    deps: { readonly clock: Clock; readonly log: Logger; readonly clusterSecret: () => Promise<ClusterSecret> },
    options: { readonly dir: string; readonly listener: ListenerSettings },
  ) {
    this.#secrets = new Secrets(deps, { dir: options.dir, address: options.listener.address });
  }

  get tokens(): readonly string[] | undefined {
    return this.#secrets.tokens;
  }

  get secureContext(): PodSecrets["secureContext"] {
    return this.#secrets.secureContext;
  }

  get isPublished(): boolean {
    return this.#isPublished;
  }

  /** What the CDI object shall say; nothing before there are secrets. */
  wanted(settings: Settings): CdiWanted | undefined {
    const listener = podListener(settings);
    if (listener === undefined) return undefined;
    const ranges = { podCIDRs: settings.routing.podCIDRs, serviceCIDRs: settings.routing.serviceCIDRs };
    const url = `http://${listener.address}:${listener.port}`;
    if (listener.auth === "none" && listener.tls === "off") return { proxy: importProxy(url, ranges) };
    const [token] = this.#secrets.tokens ?? [];
    const { certificate } = this.#secrets;
    if (token === undefined || certificate === undefined) return undefined;
    const proxy = importProxy(withCredentials(url, token), { ...ranges, trustedCAProxy: CA_CONFIG_MAP.name });
    return { proxy, caPem: certificate };
  }

  /** The CDI object says it: whoever comes without TLS from now on has not read it. */
  published({ caPem }: CdiWanted): void {
    this.#isPublished = caPem !== undefined;
  }

  /** Keeps them right until the signal aborts. */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    await this.#secrets.run(options);
  }
}

/** A file that every node of the cluster has; a node without it stands alone. */
export async function secretFromFile(path: string, log: Logger): Promise<ClusterSecret> {
  try {
    return { kind: "shared", secret: await readFile(path) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return { kind: "standalone" };
    log.warn("cannot read the cluster's secret; what is there stays", { path, error: describeError(error) });
    return { kind: "unknown" };
  }
}

/** A Secret `NAMESPACE/NAME` of the API server, under key `secret`; a cluster that has none stands for a node alone. */
export async function secretFromApi(
  api: Pick<KubeApi, "get">,
  [namespace, name]: readonly [string, string],
  log: Logger,
  signal: AbortSignal,
): Promise<ClusterSecret> {
  try {
    const found = await findObject(api, resources.secrets, { namespace, name }, { signal });
    const text = found?.data?.[SECRET_KEY];
    return text === undefined ? { kind: "standalone" } : { kind: "shared", secret: Buffer.from(text, "base64") };
  } catch (error) {
    signal.throwIfAborted();
    if (!isKubeError(error)) throw error;
    log.warn("cannot read the cluster's secret; what is there stays", { namespace, name, error: describeError(error) });
    return { kind: "unknown" };
  }
}
