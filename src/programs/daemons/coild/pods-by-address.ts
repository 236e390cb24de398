import { IpAddress } from "#base/ip";
import type { Pod } from "#kube/client";

/**
 * Pure: the pods of a node by their addresses, in the form of {@link IpAddress}. Pods that have ended keep their addresses in the API while others get them, so they
 * are left out, and so is each address that two pods have.
 */
export function podsByAddress<P extends Pick<Pod, "metadata" | "spec" | "status">>(
  pods: readonly P[],
  nodeName: string,
): ReadonlyMap<string, P> {
  const found = new Map<string, P | undefined>();
  for (const pod of pods) {
    const { spec, status } = pod;
    if (spec?.nodeName !== nodeName || spec.hostNetwork === true) continue;
    if (status?.phase === "Succeeded" || status?.phase === "Failed") continue;
    for (const { ip } of status?.podIPs ?? []) {
      const address = ip === undefined ? undefined : IpAddress.tryParse(ip);
      if (address === undefined) continue;
      const key = String(address);
      const other = found.get(key);
      found.set(key, found.has(key) && other?.metadata.uid !== pod.metadata.uid ? undefined : pod);
    }
  }
  return new Map([...found].flatMap(([address, pod]) => (pod === undefined ? [] : [[address, pod] as const])));
}
