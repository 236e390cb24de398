import type { AbortOptions } from "#base/async";
import { isKubeError, type KubeApi, resources } from "#kube/client";
import {
  type ServiceProxyConfig,
  type ServiceProxyValues,
  serviceProxyConfigOf,
  serviceProxyFlags,
} from "../../shared/service-proxy-config/index.ts";

const NAMESPACE = "kube-system";
/** The names of the ConfigMaps of our manifests and chart, and of kubeadm's for kube-proxy. */
const NAMES = ["isthmus-service-proxy", "kube-proxy"] as const;
const KEY = "config.conf";

/** Names of the flags by which the user says what the proxy's configuration is. */
export const PROXYS_FLAGS: ReadonlySet<string> = new Set(
  Object.values(serviceProxyFlags)
    .map(({ name }) => name)
    .filter((name) => name !== "kubeconfig"),
);

/**
 * The configuration that the proxies of the cluster have by their ConfigMap, with a note that names it; `undefined` if there is none, or the user may not read it.
 * Rejects with `KubeError`, and with `ConfigError` for one that no proxy would take.
 */
export async function clusterConfig(
  api: Pick<KubeApi, "get">,
  values: ServiceProxyValues,
  options: AbortOptions,
): Promise<{ readonly config: ServiceProxyConfig; readonly notes: readonly string[] } | undefined> {
  for (const name of NAMES) {
    const text = await textOf(api, name, options);
    if (text === undefined) continue;
    const from = `ConfigMap ${NAMESPACE}/${name}`;
    return {
      config: serviceProxyConfigOf(values, { text, from }),
      notes: [`the proxy's configuration is that of ${from}`],
    };
  }
  return undefined;
}

async function textOf(api: Pick<KubeApi, "get">, name: string, options: AbortOptions): Promise<string | undefined> {
  try {
    return (await api.get(resources.configMaps, { name, namespace: NAMESPACE }, options)).data?.[KEY];
  } catch (error) {
    if (isKubeError(error, "not-found") || isKubeError(error, "forbidden")) return undefined;
    throw error;
  }
}
