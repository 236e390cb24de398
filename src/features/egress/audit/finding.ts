/** The kinds of findings, each with what disagrees. They do not change between versions, so that scripts can use them. */
export const EGRESS_FINDINGS = {
  "client-annotation":
    "a pod's annotation names an Egress that does not exist, or that it cannot use beside another one",
  "client-refused": "a pod's annotation names an Egress that does not allow the pod's namespace",
  "client-namespace":
    "the network namespace or interface of a running pod that names an Egress is not found on its node, or a pod's cannot be read",
  "client-lacks":
    "a pod that names an Egress lacks a link, neighbour, rule, route, setting, port or mark of its tunnels",
  "client-surplus": "a pod that names an Egress has an object with our marks that its Egresses do not need",
  "client-stale-tunnel": "a tunnel in a pod leads to an address that the Service of its Egress does not have",
  "client-leftover": "a pod that uses no Egress, or a namespace of no pod, has objects with our marks",
  "router-namespace":
    "the network namespace or interface of a running router is not found on its node, or cannot be read",
  "router-lacks": "a router lacks a link, rule, setting or port",
  "router-surplus": "a router has a link, rule or port with our marks that it does not need",
  "router-no-way": "a router has no way to a client's address",
  "router-stray-way": "a router has a way to an address of no client",
  "router-filter": "the packet filter of a router lacks a rule, or has another one of our marks",
  "router-flows": "connection tracking of a router has entries of an address that is no pod's",
  "router-leftover": "a namespace that is no Egress's router has a router's objects",
  "egress-service": "an Egress has no Service, or one without ClusterIP, labels or the tunnels' port",
  "egress-deployment": "an Egress has no Deployment",
  "egress-endpoints": "the Service of an Egress has no ready endpoint",
  "egress-replicas": "an Egress, its status and its Deployment disagree on the routers",
  "egress-destination": "a destination of an Egress is not a CIDR, or it has none",
  "egress-driver": "a node has no tunnel driver, or a router has another one than the node of a client",
  "egress-leftover": "a Deployment or Service of an Egress that does not exist",
  "egress-subjects": "the subjects of the ClusterRoleBinding of routers are not those of the namespaces with an Egress",
} as const;

/** One difference of Egress NAT; `text` is a sentence for operators. */
export interface EgressFinding {
  readonly kind: keyof typeof EGRESS_FINDINGS;
  readonly node: string | undefined;
  readonly text: string;
}

/** Objects that one finding names; the others are counted. */
const MAX_NAMED = 5;

/** Pure: a list for a sentence; of a long one the first items and the number of the others. */
export function listed(items: readonly string[]): string {
  const more = items.length > MAX_NAMED ? [`and ${items.length - MAX_NAMED} more`] : [];
  return [...items.slice(0, MAX_NAMED), ...more].join(", ");
}
