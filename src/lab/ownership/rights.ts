import type { AbortOptions } from "#base/async";
import type { KubeApi } from "#kube/client";
import { OwnershipError } from "./errors.ts";

/** A rule of a ClusterRole. */
export interface Right {
  readonly apiGroups: readonly [string];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

const core: readonly [string] = [""];
const apps: readonly [string] = ["apps"];
const coil: readonly [string] = ["coil.cybozu.com"];

/** The rights of a lab and its programs on a cluster of another owner; `deploy/lab/rbac.yaml` has the same rules. */
export const GUEST_RIGHTS: readonly Right[] = [
  { apiGroups: core, resources: ["nodes"], verbs: ["get", "list", "watch", "create", "patch", "delete"] },
  { apiGroups: core, resources: ["nodes/status"], verbs: ["patch"] },
  { apiGroups: core, resources: ["pods"], verbs: ["get", "list", "watch", "patch", "delete"] },
  { apiGroups: core, resources: ["pods/status"], verbs: ["patch"] },
  { apiGroups: core, resources: ["namespaces"], verbs: ["get", "list", "watch", "create", "delete"] },
  { apiGroups: core, resources: ["services"], verbs: ["get", "list", "watch", "create", "delete"] },
  { apiGroups: core, resources: ["services/status"], verbs: ["patch"] },
  { apiGroups: apps, resources: ["deployments"], verbs: ["get", "list", "create", "patch", "delete"] },
  { apiGroups: apps, resources: ["replicasets"], verbs: ["list", "delete"] },
  {
    apiGroups: ["coordination.k8s.io"],
    resources: ["leases"],
    verbs: ["get", "list", "create", "update", "patch", "delete"],
  },
  { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
  { apiGroups: ["networking.k8s.io"], resources: ["servicecidrs"], verbs: ["list", "watch"] },
  { apiGroups: ["events.k8s.io"], resources: ["events"], verbs: ["list", "create", "patch", "delete"] },
  {
    apiGroups: ["apiextensions.k8s.io"],
    resources: ["customresourcedefinitions"],
    verbs: ["get", "list", "create", "patch", "delete"],
  },
  {
    apiGroups: coil,
    resources: ["addresspools"],
    verbs: ["get", "list", "watch", "create", "update", "patch", "delete"],
  },
  {
    apiGroups: coil,
    resources: ["addressblocks"],
    verbs: ["get", "list", "watch", "create", "update", "patch", "delete"],
  },
  { apiGroups: coil, resources: ["egresses"], verbs: ["get", "list", "watch"] },
  { apiGroups: coil, resources: ["blockrequests"], verbs: ["get", "list", "watch", "create", "delete"] },
  { apiGroups: coil, resources: ["blockrequests/status"], verbs: ["update"] },
];

const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

interface RightRequest {
  readonly group: string;
  readonly resource: string;
  readonly verb: string;
}

/**
 * Checks each right of {@link GUEST_RIGHTS} on the server. Rejects with {@link OwnershipError} `right-missing`, which names all missing
 * rights, and with `KubeError`.
 */
export async function checkRights(api: Pick<KubeApi, "request">, options: AbortOptions): Promise<void> {
  const requests = GUEST_RIGHTS.flatMap(({ apiGroups: [group], resources, verbs }) =>
    resources.flatMap((resource) => verbs.map((verb): RightRequest => ({ group, resource, verb }))),
  );
  const allowed = await Promise.all(requests.map((one) => isAllowed(api, one, options)));
  const missing = requests.filter((_one, at) => allowed[at] !== true);
  if (missing.length === 0) return;
  const byResource = Map.groupBy(missing, ({ group, resource }) =>
    group === "" ? resource : `${resource} of ${group}`,
  );
  const list = Array.from(
    byResource,
    ([resource, rights]) => `${rights.map(({ verb }) => verb).join(", ")} ${resource}`,
  );
  throw new OwnershipError(
    "right-missing",
    `--kubeconfig: its user may not ${list.join("; ")}: apply deploy/lab/rbac.yaml, which has the rights that a lab needs`,
  );
}

async function isAllowed(
  api: Pick<KubeApi, "request">,
  { group, resource: path, verb }: RightRequest,
  options: AbortOptions,
): Promise<boolean> {
  const [resource, subresource] = path.split("/");
  const spec = { resourceAttributes: { group, resource, verb, ...(subresource === undefined ? {} : { subresource }) } };
  const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec };
  const answer = (await api.request({ method: "POST", path: REVIEWS, body }, options)) as {
    readonly status?: { readonly allowed?: boolean };
  };
  return answer.status?.allowed === true;
}
