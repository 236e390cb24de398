import { optionalFlag } from "#base/config";
import { Counter, type Registry } from "#base/metrics";
import { KubeClient, type KubeClientOptions, loadKubeConfig } from "#kube/client";
import { VERSION } from "../program/index.ts";

/** Which API server. */
export const kubeFlags = {
  kubeconfig: optionalFlag(
    "kubeconfig",
    "credentials of the API server; else $KUBECONFIG, the pod's own, ~/.kube/config",
    "FILE",
  ),
};

/** Declares the metric of requests to the API server; returns the callback that counts one. */
export function restClientMetrics(registry: Registry): NonNullable<KubeClientOptions["onRequest"]> {
  const requests = new Counter({
    name: "rest_client_requests_total",
    help: "Requests to the API server. code: the status code of the answer, or <error> without one.",
    labelNames: ["code", "method", "host"],
    registers: [registry],
  });
  return ({ code, method, host }) => requests.inc({ code, method, host });
}

/** Opens the client of a program. `registry` gets the metric of its requests. Throws `KubeConfigError`. */
export async function openClient(
  program: string,
  values: { readonly kubeconfig: string | undefined; readonly master?: string | undefined },
  options: KubeClientOptions & { readonly registry?: Registry } = {},
): Promise<KubeClient> {
  const connection = await loadKubeConfig({ path: values.kubeconfig, server: values.master });
  const { registry, ...rest } = options;
  return new KubeClient(connection, {
    userAgent: `${program}/${VERSION} isthmus`,
    ...(registry === undefined ? {} : { onRequest: restClientMetrics(registry) }),
    ...rest,
  });
}
