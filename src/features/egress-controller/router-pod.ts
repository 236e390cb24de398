import type { Cidr } from "#base/ip";
import { type EgressPodTemplate, ROUTER_ACCOUNT, ROUTER_CONTAINER, type SpecifiedEgress } from "#kube/coil";
import { parseQuantity } from "./quantity.ts";

type PodSpec = NonNullable<EgressPodTemplate["spec"]>;
type Container = NonNullable<PodSpec["containers"]>[number];

/** The settings that the router pods of every Egress share. */
export interface RouterSettings {
  /** The image of routers whose Egress names none. */
  readonly image: string;
  /** The pull policy of that image. Absent: as the API server decides by its tag. */
  readonly pullPolicy?: Container["imagePullPolicy"];
  /** Names of Secrets with which that image is pulled, in the namespace of the Egress. */
  readonly pullSecrets?: readonly string[];
  /** The flag `--backend` of routers. */
  readonly backend: "iptables" | "nftables";
  /** The flag `--tunnel-driver` of routers. */
  readonly tunnelDriver: "fou" | "vxlan" | "auto";
  /** UDP port of the Service and of the tunnels. */
  readonly port: number;
  /** The flags `--in-cluster-cidr` of routers. Empty: they have their default. */
  readonly inCluster: readonly Cidr[];
  /** The flag `--metrics-from` of routers. Empty: they have none. */
  readonly metricsFrom: readonly Cidr[];
  /** Routers have the flag `--metrics-authorization`. Default: they have none. */
  readonly metricsAuthorization?: boolean;
}

const REQUESTS = { cpu: "100m", memory: "200Mi" } as const;
const PORTS = [
  { name: "metrics", containerPort: 8080, protocol: "TCP" },
  { name: "health", containerPort: 8081, protocol: "TCP" },
];
/** The volumes of every router, and where its container has them. A template may bring its own `run`. */
const RUN = { name: "run", mountPath: "/run" };
const MODULES = { name: "modules", mountPath: "/lib/modules", readOnly: true };

/** Pure: the pod spec of an Egress's routers: its template's, which has none of `podSpecFaults`, with what a router needs (docs/spec/pod-network.md#8). */
export function routerPodOf(egress: SpecifiedEgress, router: RouterSettings): PodSpec {
  const given: PodSpec = egress.spec.template?.spec ?? {};
  const containers = given.containers ?? [];
  const own = containers.find(({ name }) => name === ROUTER_CONTAINER);
  const routed = containerOf(own ?? { name: ROUTER_CONTAINER }, egress, router);
  const volumes = given.volumes ?? [];
  return {
    ...given,
    ...(Array.isArray(given.initContainers) ? { initContainers: given.initContainers.map(applicable) } : {}),
    ...pullSecretsOf(given, own, router),
    serviceAccountName: ROUTER_ACCOUNT,
    volumes: [
      ...volumes.filter(({ name }) => name !== MODULES.name),
      ...(volumes.some(({ name }) => name === RUN.name) ? [] : [{ name: RUN.name, emptyDir: {} }]),
      { name: MODULES.name, hostPath: { path: MODULES.mountPath } },
    ],
    containers: (own === undefined
      ? [routed, ...containers]
      : containers.map((one) => (one === own ? routed : one))
    ).map(applicable),
  };
}

/** The Secrets of our image, unless the template has some or an image of its own. */
function pullSecretsOf(
  given: PodSpec,
  own: Container | undefined,
  { pullSecrets = [] }: RouterSettings,
): Pick<PodSpec, "imagePullSecrets"> {
  if (given.imagePullSecrets !== undefined || own?.image !== undefined || pullSecrets.length === 0) return {};
  return { imagePullSecrets: pullSecrets.map((name) => ({ name })) };
}

/**
 * A container with the last of its variables of each name, which is the one that counts. Kubernetes stores the others too, but refuses to apply
 * a list with two items of one key. An earlier one to which another refers, as `$(NAME)`, counts too: then all stay, and the API server refuses
 * them. Parts that are no containers or variables are left to the API server.
 */
function applicable(container: Container): Container {
  const env: unknown = (container as Container | null)?.env;
  if (!Array.isArray(env)) return container;
  const variables: readonly ({ readonly name?: unknown; readonly value?: unknown } | null)[] = env;
  const lastOf = (at: number): number => variables.findLastIndex((one) => one?.name === variables[at]?.name);
  const isNeeded = (at: number): boolean => {
    const reference = `$(${String(variables[at]?.name)})`;
    return variables.slice(at + 1, lastOf(at) + 1).some((one) => String(one?.value ?? "").includes(reference));
  };
  const isKept = (at: number): boolean => variables[at]?.name === undefined || lastOf(at) === at;
  if (variables.some((_, at) => !isKept(at) && isNeeded(at))) return container;
  return { ...container, env: env.filter((_, at) => isKept(at)) };
}

/** The template's container, with what a router needs. */
function containerOf(given: Container, egress: SpecifiedEgress, router: RouterSettings): Container {
  const mounts = (given.volumeMounts ?? []).filter(
    ({ mountPath }) => mountPath !== RUN.mountPath && mountPath !== MODULES.mountPath,
  );
  const own = environmentOf(egress);
  const env = (given.env ?? []).filter(({ name }) => !own.some((one) => one.name === name));
  return {
    // How an image of the template is pulled is the template's.
    ...(given.image !== undefined || router.pullPolicy === undefined ? {} : { imagePullPolicy: router.pullPolicy }),
    ...given,
    image: given.image ?? router.image,
    command: given.command ?? ["coil-egress"],
    args: given.args ?? argumentsOf(egress, router),
    env: [...env, ...own],
    volumeMounts: [...mounts, RUN, MODULES],
    securityContext: { privileged: true, readOnlyRootFilesystem: true, capabilities: { add: ["NET_ADMIN"] } },
    resources: resourcesOf(given.resources ?? {}),
    ports: PORTS,
    livenessProbe: { httpGet: { path: "/healthz", port: "health", scheme: "HTTP" } },
    readinessProbe: { httpGet: { path: "/readyz", port: "health", scheme: "HTTP" } },
  };
}

function environmentOf({ metadata: { name } }: SpecifiedEgress): NonNullable<Container["env"]> {
  const field = (fieldPath: string) => ({ valueFrom: { fieldRef: { apiVersion: "v1", fieldPath } } });
  return [
    { name: "COIL_POD_ADDRESSES", ...field("status.podIPs") },
    { name: "COIL_POD_NAMESPACE", ...field("metadata.namespace") },
    { name: "COIL_EGRESS_NAME", value: name },
  ];
}

function argumentsOf(
  egress: SpecifiedEgress,
  { backend, tunnelDriver, port, inCluster, metricsFrom, metricsAuthorization = false }: RouterSettings,
): string[] {
  return [
    "--zap-stacktrace-level=panic",
    ...(egress.spec.fouSourcePortAuto === true ? ["--enable-sport-auto=true"] : []),
    `--backend=${backend}`,
    // Coil's routers do not know these: an Egress may name Coil's image.
    ...(tunnelDriver === "fou" ? [] : [`--tunnel-driver=${tunnelDriver}`]),
    ...(port === 5555 ? [] : [`--fou-port=${port}`]),
    ...inCluster.map((range) => `--in-cluster-cidr=${range}`),
    ...(metricsFrom.length === 0 ? [] : [`--metrics-from=${metricsFrom.join(",")}`]),
    ...(metricsAuthorization ? ["--metrics-authorization"] : []),
  ];
}

/** A request that is not given is the default one, or the server's if the template's limit is lower: a request above its limit is refused. */
function resourcesOf(given: NonNullable<Container["resources"]>): NonNullable<Container["resources"]> {
  const [limits, requests] = [given.limits ?? {}, given.requests ?? {}];
  const added = Object.entries(REQUESTS).filter(([name, request]) => {
    const limit = limits[name];
    return requests[name] === undefined && (limit === undefined || parseQuantity(limit) >= parseQuantity(request));
  });
  return { ...given, requests: { ...requests, ...Object.fromEntries(added) } };
}
