import type { SeedObject } from "../seed.ts";

const API_VERSION = "rbac.authorization.k8s.io/v1";
const EVERYBODY = ["system:authenticated"];

interface BootstrapRole {
  readonly name: string;
  readonly rules: readonly Readonly<Record<string, readonly string[]>>[];
  /** Groups that have the role from the start. */
  readonly groups: readonly string[];
}

/**
 * The roles of every cluster that the suite or kubectl needs (kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy).
 */
const ROLES: readonly BootstrapRole[] = [
  {
    name: "cluster-admin",
    rules: [
      { apiGroups: ["*"], resources: ["*"], verbs: ["*"] },
      { nonResourceURLs: ["*"], verbs: ["*"] },
    ],
    groups: ["system:masters"],
  },
  {
    name: "system:discovery",
    rules: [
      {
        nonResourceURLs: [
          ...["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"],
          ...["/version", "/version/"],
        ],
        verbs: ["get"],
      },
    ],
    groups: EVERYBODY,
  },
  {
    name: "system:basic-user",
    rules: [
      {
        apiGroups: ["authorization.k8s.io"],
        resources: ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        verbs: ["create"],
      },
    ],
    groups: EVERYBODY,
  },
  {
    name: "system:public-info-viewer",
    rules: [{ nonResourceURLs: ["/healthz", "/livez", "/readyz", "/version", "/version/"], verbs: ["get"] }],
    groups: ["system:authenticated", "system:unauthenticated"],
  },
  {
    name: "system:auth-delegator",
    rules: [
      { apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"] },
      { apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] },
    ],
    groups: [],
  },
];

/** ClusterRoles and ClusterRoleBindings that exist from the start. */
export function bootstrapRoles(): SeedObject[] {
  return ROLES.flatMap(({ name, rules, groups }) => {
    const metadata = {
      name,
      labels: { "kubernetes.io/bootstrapping": "rbac-defaults" },
      annotations: { "rbac.authorization.kubernetes.io/autoupdate": "true" },
    };
    const role = { apiVersion: API_VERSION, kind: "ClusterRole", metadata, rules };
    const subjects = groups.map((group) => ({ apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: group }));
    const roleRef = { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name };
    const binding = { apiVersion: API_VERSION, kind: "ClusterRoleBinding", metadata, roleRef, subjects };
    return groups.length === 0 ? [role] : [role, binding];
  });
}
