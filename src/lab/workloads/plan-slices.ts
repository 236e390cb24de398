import type { Pod, Service } from "#kube/client";

/** Label that names the Service of a slice. */
export const SERVICE_NAME_LABEL = "kubernetes.io/service-name";
const HEADLESS_LABEL = "service.kubernetes.io/headless";
/** Maximum number of endpoints in one slice (kube-controller-manager's default). */
const MAX_ENDPOINTS = 100;

/** A wanted slice. */
export interface WantedSlice {
  readonly apiVersion: "discovery.k8s.io/v1";
  readonly kind: "EndpointSlice";
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly ownerReferences: readonly object[];
  };
  readonly addressType: "IPv4" | "IPv6";
  readonly ports: readonly { readonly name: string; readonly port: number; readonly protocol: string }[];
  readonly endpoints: readonly WantedEndpoint[];
}

interface WantedEndpoint {
  readonly addresses: readonly string[];
  readonly conditions: { readonly ready: boolean; readonly serving: boolean; readonly terminating: boolean };
  readonly nodeName: string;
  readonly targetRef: { readonly kind: "Pod"; readonly name: string; readonly namespace: string; readonly uid: string };
}

/** Pure: the slices of a Service with these pods, each of one family, with the conditions of KEP-1672 for terminating pods. */
export function planSlices(service: Service, pods: readonly Pod[]): WantedSlice[] {
  const families = (service.spec?.ipFamilies ?? ["IPv4"]) as readonly ("IPv4" | "IPv6")[];
  return families.flatMap((family) => {
    // A named target port may have another number in each pod: one slice for each set of numbers.
    const groups = Map.groupBy(
      pods.filter((pod) => isCandidate(pod) && addressOf(pod, family) !== undefined),
      (pod) => JSON.stringify(portsOf(service, pod)),
    );
    return [...groups]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .flatMap(([ports, members], group) => {
        const endpoints = members
          .map((pod) => endpointOf(service, pod, family))
          .sort((a, b) => (a.targetRef.name < b.targetRef.name ? -1 : 1));
        return chunk(endpoints, MAX_ENDPOINTS).map((part, at) =>
          sliceOf(service, {
            family,
            suffix: `${group}-${at}`,
            ports: JSON.parse(ports) as WantedSlice["ports"],
            endpoints: part,
          }),
        );
      });
  });
}

function sliceOf(
  { metadata, spec }: Service,
  part: {
    readonly family: "IPv4" | "IPv6";
    readonly suffix: string;
    readonly ports: WantedSlice["ports"];
    readonly endpoints: readonly WantedEndpoint[];
  },
): WantedSlice {
  const { name, namespace = "default", uid } = metadata;
  const headless: Record<string, string> = spec?.clusterIP === "None" ? { [HEADLESS_LABEL]: "" } : {};
  return {
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice",
    metadata: {
      name: `${name}-${part.family.toLowerCase()}-${part.suffix}`,
      namespace,
      labels: { [SERVICE_NAME_LABEL]: name, ...headless },
      ownerReferences: [{ apiVersion: "v1", kind: "Service", name, uid, controller: true, blockOwnerDeletion: true }],
    },
    addressType: part.family,
    ports: part.ports,
    endpoints: part.endpoints,
  };
}

/** Returns true if a pod has an address and has not ended. */
function isCandidate({ status }: Pod): boolean {
  return status?.phase !== "Succeeded" && status?.phase !== "Failed" && (status?.podIPs?.length ?? 0) > 0;
}

function addressOf({ status }: Pod, family: "IPv4" | "IPv6"): string | undefined {
  return status?.podIPs?.map(({ ip }) => ip ?? "").find((ip) => ip.includes(":") === (family === "IPv6") && ip !== "");
}

function endpointOf(service: Service, pod: Pod, family: "IPv4" | "IPv6"): WantedEndpoint {
  const { name, namespace = "default", uid, deletionTimestamp } = pod.metadata;
  const isReady = pod.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
  const terminating = deletionTimestamp !== undefined;
  const publishes = service.spec?.publishNotReadyAddresses === true;
  return {
    addresses: [addressOf(pod, family) ?? ""],
    conditions: { ready: publishes || (isReady && !terminating), serving: publishes || isReady, terminating },
    nodeName: pod.spec?.nodeName ?? "",
    targetRef: { kind: "Pod", name, namespace, uid },
  };
}

function portsOf({ spec }: Service, pod: Pod): WantedSlice["ports"] {
  return (spec?.ports ?? []).flatMap(({ name = "", protocol = "TCP", port, targetPort }) => {
    const number = typeof targetPort === "string" ? namedPort(pod, targetPort, protocol) : (targetPort ?? port);
    return number === undefined ? [] : [{ name, port: number, protocol }];
  });
}

function namedPort({ spec }: Pod, name: string, protocol: string): number | undefined {
  const ports = (spec?.containers ?? []).flatMap((container) => container.ports ?? []);
  return ports.find((one) => one.name === name && (one.protocol ?? "TCP") === protocol)?.containerPort;
}

function chunk<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, at) => items.slice(at * size, (at + 1) * size));
}
