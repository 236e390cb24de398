import { flagOf, type SuiteCommand } from "../programs.ts";

/** A right that a program cannot do without. */
export interface NeededRight {
  readonly group: string;
  readonly resource: string;
  readonly verb: string;
  /** The namespace of a right of a Role; absent: in all namespaces. */
  readonly namespace?: string;
  /** The one object that the right is needed for; absent: each, also those that are made later. */
  readonly name?: string;
}

const COIL = "coil.cybozu.com";
const NICS = "isthmus.dev";
const can = (group: string, resource: string, ...verbs: readonly string[]): readonly NeededRight[] =>
  verbs.map((verb) => ({ group, resource, verb }));
/** The rights of an election: on the controller's own Lease alone, besides making it. */
function elect(name: string): readonly NeededRight[] {
  const leases = { group: "coordination.k8s.io", resource: "leases", namespace: "kube-system" };
  return [
    { ...leases, verb: "create" },
    { ...leases, verb: "get", name },
    { ...leases, verb: "update", name },
  ];
}

const ipam: readonly NeededRight[] = [
  ...can("", "nodes", "list", "watch"),
  ...can(COIL, "addresspools", "list", "watch", "update"),
  ...can(COIL, "addressblocks", "list", "watch", "create", "update", "delete"),
  ...can(COIL, "blockrequests", "list", "watch"),
  ...can(COIL, "blockrequests/status", "update"),
  ...elect("coil-ipam-leader"),
];
const egress: readonly NeededRight[] = [
  ...can(COIL, "egresses", "list", "watch"),
  ...can(COIL, "egresses/status", "patch"),
  ...can("apps", "deployments", "list", "watch", "create", "update"),
  ...can("", "services", "list", "watch", "create"),
  ...elect("coil-egress-leader"),
];

/** The rights of coild that gives addresses; one behind another plugin has none of them. */
const blocks: readonly NeededRight[] = [
  ...can(COIL, "addressblocks", "list", "watch", "update", "delete"),
  ...can(COIL, "blockrequests", "list", "watch", "create", "delete"),
];

/** The rights without which programs do not work, by program; the manifests in deploy have all rights (docs/reference). */
export const NEEDED_RIGHTS: Readonly<Record<string, readonly NeededRight[]>> = {
  coild: [...can("", "pods", "get"), ...can("", "namespaces", "list", "watch"), ...blocks],
  "coil-router": [...can("", "nodes", "list", "watch"), ...can(COIL, "addressblocks", "list", "watch")],
  "coil-ipam-controller": ipam,
  "coil-egress-controller": egress,
  "coil-egress": [
    ...can("", "pods", "list", "watch"),
    // Without these it checks less, and says so.
    ...can("", "namespaces", "list", "watch"),
    ...can(COIL, "egresses", "list", "watch"),
    ...can(COIL, "addresspools", "list", "watch"),
    ...can(COIL, "addressblocks", "list", "watch"),
  ],
  "service-proxy": [
    ...can("", "services", "list", "watch"),
    ...can("discovery.k8s.io", "endpointslices", "list", "watch"),
    ...can("", "nodes", "list", "watch"),
  ],
  "nic-controller": [
    ...can("", "pods", "list", "watch", "patch"),
    ...can("", "pods/status", "patch"),
    ...can(NICS, "nicclaims", "list", "watch", "create", "patch", "delete"),
    ...can(NICS, "nicclaims/status", "patch"),
    ...can(NICS, "nicpolicies", "list", "watch"),
    ...elect("nic-controller-leader"),
  ],
  "nic-agent": [
    ...can("", "pods", "get"),
    ...can(NICS, "nicclaims", "list", "watch"),
    ...can(NICS, "nicclaims/status", "patch"),
  ],
};

/** The rights that a program needs with these flags. Pure. */
export function neededRights({ program, flags }: SuiteCommand): readonly NeededRight[] {
  const all = NEEDED_RIGHTS[program] ?? [];
  return program === "coild" && flagOf(flags, "enable-ipam") === "false"
    ? all.filter((right) => !blocks.includes(right))
    : all;
}
