import type { AbortOptions } from "#base/async";
import {
  type AccessNamespace,
  accessNamespace,
  accessPod,
  egressAccess,
  egressUse,
  refusalText,
} from "#features/egress";
import { type KubeClient, resources } from "#kube/client";
import type { Egress } from "#kube/coil";
import { collect } from "../../shared/suite/index.ts";

/** A pod that names an Egress that it may not use: `namespace/name`, and the reason as a sentence. */
export interface RefusedClient {
  readonly pod: string;
  readonly why: string;
}

/** The pods of the cluster that name an Egress that does not allow their namespace. Without a restricted Egress nothing is read. Rejects with `KubeError`. */
export async function refusedClients(
  api: KubeClient,
  egresses: readonly Egress[],
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<readonly RefusedClient[]> {
  const accesses = egresses.map(egressAccess).filter(({ allowed }) => allowed !== undefined);
  if (accesses.length === 0) return [];
  const namespaces = new Map<string, AccessNamespace>(
    (await collect(api, resources.namespaces, options, (one) => [accessNamespace(one)])).map((one) => [one.name, one]),
  );
  return collect(api, resources.pods, options, ({ metadata, spec, status }) => {
    const { namespace = "", name, labels, annotations } = metadata;
    if (spec?.hostNetwork === true || status?.phase === "Succeeded" || status?.phase === "Failed") return [];
    const pod = accessPod({ namespace, labels, annotations });
    if (pod.named.size === 0) return [];
    const refused = accesses.flatMap((egress) => {
      const use = egressUse(egress, pod, namespaces.get(namespace));
      return use.kind === "refused" && use.by === "annotation" ? [refusalText(egress, namespace, use)] : [];
    });
    return refused.length === 0 ? [] : [{ pod: `${namespace}/${name}`, why: refused.join("; ") }];
  });
}
