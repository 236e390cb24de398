import type { AbortOptions } from "#base/async";
import { type KubeApi, resources } from "#kube/client";
import { POOL_ANNOTATION } from "#kube/coil";
import type { LabServices } from "#lab/host";
import { applyObject } from "./apply-object.ts";

export const SERVICES_NAMESPACE = "services";
/** The pool of the default scenario with every family of the lab. */
const POOL = "dual";
const GRACE_SECONDS = 30;
export const SERVICE_PORT = 80;
/** What balancers have as their own addresses. */
const INGRESS = {
  web: [{ ip: "203.0.113.10" }, { ip: "2001:db8:113::10" }],
  edge: [{ ip: "203.0.113.11" }, { ip: "2001:db8:113::11" }],
} as const;

/** Deployments behind the Services: `web` has pods on every node, `edge` on all but one where there are three or more. */
export type BackendName = "web" | "edge";

/** Pure: how many pods a Deployment has on so many nodes. */
export function replicasOf(name: BackendName, nodes: number): number {
  return name === "web" ? nodes + 1 : Math.max(2, nodes - 1);
}

/** Pure: every kind of Service, by name. `lonely` selects no pod. */
export function serviceSpecs(): Readonly<Record<string, Record<string, unknown>>> {
  const to = (app: string, more: object = {}): Record<string, unknown> => ({
    selector: { app },
    ipFamilyPolicy: "PreferDualStack",
    ports: [{ name: "http", port: SERVICE_PORT, targetPort: "http" }],
    ...more,
  });
  return {
    web: to("web", { type: "LoadBalancer", externalTrafficPolicy: "Cluster" }),
    edge: to("edge", { type: "LoadBalancer", externalTrafficPolicy: "Local" }),
    near: to("edge", { internalTrafficPolicy: "Local" }),
    sticky: to("web", { sessionAffinity: "ClientIP" }),
    lonely: to("nobody"),
  };
}

/** Puts the Services and their Deployments on the cluster by server-side apply. Rejects with `KubeError`. */
export async function applyServices(
  api: KubeApi,
  { backend }: LabServices,
  nodes: number,
  options: AbortOptions,
): Promise<void> {
  const namespace = SERVICES_NAMESPACE;
  const metadata = { name: namespace, annotations: { [POOL_ANNOTATION]: POOL } };
  await applyObject(api, resources.namespaces, { apiVersion: "v1", kind: "Namespace", metadata }, options);
  for (const [name, spec] of Object.entries(serviceSpecs())) {
    const body = { apiVersion: "v1", kind: "Service", metadata: { name, namespace }, spec };
    await applyObject(api, resources.services, body, options);
  }
  // As the balancer's controller of a cloud would tell.
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
    const body = deploymentOf(name, replicasOf(name, nodes), backend, 1);
    await applyObject(api, resources.deployments, body, options);
  }
}

/** Gives a Deployment's pods another revision, so that all are replaced. Rejects with `KubeError`. */
export async function startRollout(
  api: KubeApi,
  { backend }: LabServices,
  at: { readonly name: BackendName; readonly nodes: number; readonly revision: number },
  options: AbortOptions,
): Promise<void> {
  const body = deploymentOf(at.name, replicasOf(at.name, at.nodes), backend, at.revision);
  await applyObject(api, resources.deployments, body, options);
}

function deploymentOf(name: BackendName, replicas: number, backend: LabServices["backend"], revision: number) {
  const labels = { app: name };
  const container = {
    name: "main",
    image: "lab.isthmus.dev/backend",
    command: backend.command,
    ports: [{ name: "http", containerPort: backend.port }],
    readinessProbe: { tcpSocket: { port: backend.port }, periodSeconds: 1 },
  };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, namespace: SERVICES_NAMESPACE },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels, annotations: { "lab.isthmus.dev/revision": String(revision) } },
        spec: { containers: [container], terminationGracePeriodSeconds: GRACE_SECONDS },
      },
    },
  };
}
