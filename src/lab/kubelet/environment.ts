import type { Pod } from "#kube/client";

/** The addresses that a pod's environment may name. */
export interface PodPlace {
  readonly ips: readonly string[];
  readonly hostIps: readonly string[];
}

/**
 * Pure: the environment of a pod's process: its name as HOSTNAME, and the variables of its first container. Of `valueFrom` it knows the
 * fields of a pod that `fieldRef` may name, except labels and annotations; other sources are empty.
 */
export function environmentOf(pod: Pod, place: PodPlace): Readonly<Record<string, string>> {
  const fields = fieldsOf(pod, place);
  const given = (pod.spec?.containers?.[0]?.env ?? []).map(({ name, value, valueFrom }): [string, string] => [
    name,
    value ?? fields[valueFrom?.fieldRef?.fieldPath ?? ""] ?? "",
  ]);
  return { HOSTNAME: pod.metadata.name, ...Object.fromEntries(given) };
}

function fieldsOf({ metadata, spec }: Pod, { ips, hostIps }: PodPlace): Readonly<Record<string, string>> {
  return {
    "metadata.name": metadata.name,
    "metadata.namespace": metadata.namespace ?? "",
    "metadata.uid": metadata.uid,
    "spec.nodeName": spec?.nodeName ?? "",
    "spec.serviceAccountName": spec?.serviceAccountName ?? "",
    "status.podIP": ips[0] ?? "",
    "status.podIPs": ips.join(","),
    "status.hostIP": hostIps[0] ?? "",
    "status.hostIPs": hostIps.join(","),
  };
}
