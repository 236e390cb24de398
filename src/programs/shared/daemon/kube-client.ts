import { systemClock } from "#base/clock";
import { optionalFlag } from "#base/config";
import type { Registry } from "#base/metrics";
import { VERSION } from "#base/version";
import { KubeClient, type KubeClientOptions, loadKubeConfig } from "#kube/client";
import { apiServerFlag } from "../api-server-flag/index.ts";
import { restClientMetrics } from "../metrics/index.ts";

/** Flags that select the API server. */
export const kubeFlags = {
  kubeconfig: optionalFlag(
    "kubeconfig",
    "kubeconfig of the API server; default: $KUBECONFIG, else the pod's service account, else ~/.kube/config",
    "FILE",
  ),
  ...apiServerFlag,
};

/** Opens the client of a program. `registry` gets the metric of its requests. Throws `KubeConfigError`. */
export async function openClient(
  program: string,
  values: {
    readonly kubeconfig: string | undefined;
    readonly master?: string | undefined;
    readonly apiServer?: readonly string[] | undefined;
  },
  options: KubeClientOptions & { readonly registry?: Registry },
): Promise<KubeClient> {
  const { kubeconfig: path, master: server, apiServer: others } = values;
  const connection = await loadKubeConfig({ path, server, others, clock: options.clock });
  const { registry, ...rest } = options;
  return new KubeClient(connection, {
    userAgent: `${program}/${VERSION} isthmus`,
    ...(registry === undefined ? {} : { onRequest: restClientMetrics(registry) }),
    ...rest,
    clock: systemClock,
  });
}
