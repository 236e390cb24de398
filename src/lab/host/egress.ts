import type { AbortOptions } from "#base/async";
import type { KubeApi } from "#kube/client";
import { resources } from "#kube/client";
import { createOwn, type LabIdentity } from "#lab/ownership";
import { siteAddress, type Topology } from "#lab/topology";
import type { LabPaths } from "./lab-paths.ts";

/** The namespace of the Egresses and of their routers. */
const NAMESPACE = "internet";
/** The account of routers, and the name of the ClusterRoleBinding that `coil-egress-controller` keeps. */
const ACCOUNT = "coil-egress";
const ROUTER_IMAGE = "lab.isthmus.dev/coil-egress";
const DRIVER = "--tunnel-driver=auto";
/** The time for which a router goes on after SIGTERM, in milliseconds. */
const DRAIN_MS = 4000;

/** The Egresses of a lab as plain data: the network outside, and the command of routers. */
export interface LabEgress {
  /** The namespace of the network outside. */
  readonly outside: string;
  readonly sites: readonly {
    readonly name: "both" | "pair" | "later";
    readonly networks: readonly string[];
    /** The address of the site's host, one of each family, as the networks. */
    readonly addresses: readonly string[];
  }[];
  /** The Kubernetes namespace of the Egresses. */
  readonly namespace: string;
  readonly router: { readonly command: readonly string[]; readonly args: readonly string[] };
  readonly drainMs: number;
}

/** Pure: the Egresses of a lab; `undefined` if it has none. */
export function planLabEgress(
  { outside }: Pick<Topology, "outside">,
  { paths, isthmus }: { readonly paths: Pick<LabPaths, "routerKubeconfig">; readonly isthmus: readonly string[] },
): LabEgress | undefined {
  if (outside === undefined) return undefined;
  return {
    outside: outside.netns,
    sites: outside.sites.map(({ name, networks }) => ({
      name,
      networks: networks.map(String),
      addresses: networks.map((network) => String(siteAddress(network))),
    })),
    namespace: NAMESPACE,
    router: {
      command: [...isthmus, "coil-egress"],
      args: [`--kubeconfig=${paths.routerKubeconfig}`, DRIVER, "--backend=nftables", `--drain-delay=${DRAIN_MS}ms`],
    },
    drainMs: DRAIN_MS,
  };
}

/** Flags of `coild` where pods can use Egresses. */
export const EGRESS_COILD_FLAGS: readonly string[] = [DRIVER];

/** Flags of `coil-egress-controller`. */
export const EGRESS_CONTROLLER_FLAGS: readonly string[] = [
  "--webhook-addr=none",
  `--image=${ROUTER_IMAGE}`,
  DRIVER,
  "--backend=nftables",
];

/** The user that the API server takes the routers for. */
export const ROUTER_USER = {
  name: `system:serviceaccount:${NAMESPACE}:${ACCOUNT}`,
  groups: ["system:serviceaccounts", `system:serviceaccounts:${NAMESPACE}`, "system:authenticated"],
} as const;

/**
 * Creates the rights of routers as `deploy/pods` has them, for no subject yet: `coil-egress-controller` adds those. Rejects with `KubeError`.
 */
export async function makeRouterRights(api: KubeApi, identity: LabIdentity, options: AbortOptions): Promise<void> {
  const rules = [{ apiGroups: [""], resources: ["pods"], verbs: ["get", "list", "watch"] }];
  await createOwn(api, identity, resources.clusterRoles, { metadata: { name: ACCOUNT }, rules }, options);
  const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: ACCOUNT };
  const binding = { metadata: { name: ACCOUNT }, roleRef, subjects: [] };
  await createOwn(api, identity, resources.clusterRoleBindings, binding, options);
}
