import type { AbortOptions } from "#base/async";
import { type Deployment, type Draft, type KubeApi, resources } from "#kube/client";
import type { LabServices } from "#lab/host";
import { createOwn, type LabIdentity, podPlacement } from "#lab/ownership";
import { makeNamespace } from "./apply.ts";

/** The pool of the default scenario with every family of the lab. */
const POOL = "dual";
/** A class that no cloud's controller knows, so that none makes a load balancer for a lab. */
const BALANCER_CLASS = "lab.isthmus.dev/none";
const REVISION = "lab.isthmus.dev/revision";
const GRACE_SECONDS = 30;
export const SERVICE_PORT = 80;
/** Addresses of the load balancers. */
const INGRESS = {
  web: [{ ip: "203.0.113.10" }, { ip: "2001:db8:113::10" }],
  edge: [{ ip: "203.0.113.11" }, { ip: "2001:db8:113::11" }],
} as const;

/** Deployments behind the Services: `web` has pods on every node, `edge` on all but one if there are three or more. */
export type BackendName = "web" | "edge";

/** Pure: the namespace of the Services and their pods. */
export function servicesNamespace({ prefix }: LabIdentity): string {
  return `${prefix}services`;
}

/** Pure: the replicas of a Deployment for a number of nodes. */
export function replicasOf(name: BackendName, nodes: number): number {
  return name === "web" ? nodes + 1 : Math.max(2, nodes - 1);
}

/** Pure: every kind of Service, by name. the Service `lonely` selects no pod. */
export function serviceSpecs(): Readonly<Record<string, Record<string, unknown>>> {
  const to = (app: string, more: object = {}): Record<string, unknown> => ({
    selector: { app },
    ipFamilyPolicy: "PreferDualStack",
    ports: [{ name: "http", port: SERVICE_PORT, targetPort: "http" }],
    ...more,
  });
  return {
    web: to("web", { type: "LoadBalancer", loadBalancerClass: BALANCER_CLASS, externalTrafficPolicy: "Cluster" }),
    edge: to("edge", { type: "LoadBalancer", loadBalancerClass: BALANCER_CLASS, externalTrafficPolicy: "Local" }),
    near: to("edge", { internalTrafficPolicy: "Local" }),
    sticky: to("web", { sessionAffinity: "ClientIP" }),
    lonely: to("nobody"),
  };
}

/** Creates the Services and their Deployments. Rejects with `KubeError` and `OwnershipError`. */
export async function applyServices(
  api: KubeApi,
  { at, identity, nodes }: { readonly at: LabServices; readonly identity: LabIdentity; readonly nodes: number },
  options: AbortOptions,
): Promise<void> {
  const namespace = servicesNamespace(identity);
  await makeNamespace(api, identity, { name: namespace, pool: `${identity.prefix}${POOL}` }, options);
  for (const [name, spec] of Object.entries(serviceSpecs()))
    await createOwn(api, identity, resources.services, { metadata: { name, namespace }, spec }, options);
  // A cloud's controller would report these addresses.
  for (const name of ["web", "edge"] as const) {
    const status = { loadBalancer: { ingress: INGRESS[name] } };
    await api.patch(
      resources.services,
      { name, namespace },
      { type: "merge", body: { status } },
      { ...options, subresource: "status" },
    );
  }
  for (const name of ["web", "edge"] as const) {
    const draft = deploymentOf(name, replicasOf(name, nodes), at.backend, identity);
    await createOwn(api, identity, resources.deployments, draft, options);
  }
}

/** Changes the revision in a Deployment's template, so that all pods are replaced. Rejects with `KubeError`. */
export async function startRollout(
  api: KubeApi,
  at: { readonly name: BackendName; readonly identity: LabIdentity; readonly revision: number },
  options: AbortOptions,
): Promise<void> {
  const ref = { name: at.name, namespace: servicesNamespace(at.identity) };
  const metadata = { annotations: { [REVISION]: String(at.revision) } };
  const body = { spec: { template: { metadata } } };
  await api.patch(resources.deployments, ref, { type: "merge", body }, options);
}

function deploymentOf(
  name: BackendName,
  replicas: number,
  backend: LabServices["backend"],
  identity: LabIdentity,
): Draft<Deployment> {
  const labels = { app: name };
  const container = {
    name: "main",
    image: "lab.isthmus.dev/backend",
    command: [...backend.command],
    ports: [{ name: "http", containerPort: backend.port }],
    readinessProbe: { tcpSocket: { port: backend.port }, periodSeconds: 1, failureThreshold: 1 },
  };
  return {
    metadata: { name, namespace: servicesNamespace(identity) },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels, annotations: { [REVISION]: "1" } },
        spec: {
          containers: [container],
          terminationGracePeriodSeconds: GRACE_SECONDS,
          ...podPlacement(identity, labels),
        },
      },
    },
  };
}
