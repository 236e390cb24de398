/**
 * Helpers for tests of the shipped service proxy in a {@link ServiceBed}: changes of objects, a proxy after its first sync.
 *
 * Owns: the slices and labels of Service `web`. Does not know: what is tested.
 *
 * ```ts
 * const proxy = await startSynced(t, cluster, "--nodeport-addresses=192.0.2.0/24");
 * await label(cluster, "node", { "topology.kubernetes.io/zone": "a" });
 * ```
 */
import { IpAddress, type IpFamily } from "#base/ip";
import { resources } from "#kube/client";
import { connectInside, InsideError, request } from "#lab/inside";
import { type Running, until } from "#test/lab";
import { NODE, PORTS, ServiceBed } from "#test/service-bed";
import { addressesOf, TARGET_PORT } from "../../src/features/service-proxy/testing/fixture.ts";
import type { EndpointObject } from "../../src/features/service-proxy/testing/objects.ts";

const NAMESPACE = "default";
const HEALTH_PORT = 10_256;
const PODS = ([4, 6] as const).map((family) => String(addressesOf(family).pods)).join(",");

/** The Service's addresses and type: every front end, in both families. */
export function dualNodePort(): {
  readonly type: "NodePort";
  readonly clusterIP: string;
  readonly clusterIPs: string[];
} {
  const clusterIPs = ([4, 6] as const).map((family) => String(addressesOf(family).clusterIP));
  const families = { ipFamilies: ["IPv4", "IPv6"], ipFamilyPolicy: "RequireDualStack" };
  return { type: "NodePort", clusterIP: clusterIPs[0] ?? "", clusterIPs, ...families };
}

/** A bed whose Service is {@link dualNodePort}. */
export function openServiceBed(prefix: string): Promise<ServiceBed> {
  return ServiceBed.open(prefix, { service: dualNodePort() });
}

/** Makes the Service again, at the same addresses. */
export async function createService({ client }: ServiceBed): Promise<void> {
  const metadata = { name: "web", namespace: NAMESPACE };
  await client.create(resources.services, { metadata, spec: { ...dualNodePort(), ports: PORTS } });
}

export async function deleteService({ client }: ServiceBed): Promise<void> {
  await client.delete(resources.services, { name: "web", namespace: NAMESPACE });
}

/** Replaces the Service's slice of a family, with these labels and annotations added. */
export async function setSlice(
  { client }: ServiceBed,
  family: IpFamily,
  endpoints: readonly EndpointObject[],
  { labels = {}, annotations = {} }: { readonly labels?: object; readonly annotations?: object } = {},
): Promise<void> {
  const ref = { name: `web-${family}`, namespace: NAMESPACE };
  const body = {
    metadata: { ...ref, annotations, labels: { "kubernetes.io/service-name": "web", ...labels } },
    addressType: `IPv${family}`,
    ports: [{ name: "http", port: TARGET_PORT, protocol: "TCP" }],
    endpoints,
  };
  await client.patch(resources.endpointSlices, ref, { type: "apply", body, fieldManager: "test", force: true });
}

export async function removeSlice({ client }: ServiceBed, family: IpFamily): Promise<void> {
  await client.delete(resources.endpointSlices, { name: `web-${family}`, namespace: NAMESPACE });
}

/** Sets labels; null removes one. */
export async function label(
  { client }: ServiceBed,
  what: "node" | "service",
  labels: Readonly<Record<string, string | null>>,
): Promise<void> {
  const patch = { type: "merge", body: { metadata: { labels } } } as const;
  if (what === "node") await client.patch(resources.nodes, { name: NODE }, patch);
  else await client.patch(resources.services, { name: "web", namespace: NAMESPACE }, patch);
}

/** Starts a proxy and waits for its first sync: until then the rules are those of an earlier proxy. {@link stop} it before the next. */
export async function startSynced(
  t: { after(cleanUp: () => unknown): void },
  cluster: ServiceBed,
  ...flags: string[]
): Promise<Running> {
  const proxy = cluster.startProxy(`--cluster-cidr=${PODS}`, ...flags);
  t.after(() => proxy.child.kill("SIGKILL"));
  await until("the proxy has synced", () => hasSynced(cluster), { seen: proxy.said });
  return proxy;
}

/** Waits until a proxy is healthy: after its first sync, or before it with the complete table of an earlier run. */
export async function untilHealthy(cluster: ServiceBed, proxy: Running): Promise<void> {
  await until("the proxy is healthy", () => isHealthy(cluster), { seen: proxy.said });
}

/** Ends a proxy as its supervisor would. */
export async function stop(proxy: Running): Promise<void> {
  proxy.child.kill("SIGTERM");
  await proxy.ended;
}

const isHealthy = async (cluster: ServiceBed): Promise<boolean> => (await healthOf(cluster)) !== undefined;

/** True if each family has had a sync of this process: the table of an earlier run has the rules of other flags. */
async function hasSynced(cluster: ServiceBed): Promise<boolean> {
  const body = await healthOf(cluster);
  if (body === undefined) return false;
  const { status } = JSON.parse(body) as { readonly status: Readonly<Record<string, { lastUpdated: string }>> };
  return Object.values(status).every(({ lastUpdated }) => !lastUpdated.startsWith("0001-"));
}

/** The body of a proxy that is healthy. */
async function healthOf(cluster: ServiceBed): Promise<string | undefined> {
  try {
    const { status, body } = await askHealthPort(cluster, "/healthz");
    return status === 200 ? body : undefined;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return undefined;
  }
}

/** Answer of the proxy's health port. Rejects with `InsideError`. */
export async function askHealthPort(
  cluster: ServiceBed,
  path: string,
): Promise<{ readonly status: number; readonly body: string }> {
  const address = IpAddress.parse(String(addressesOf(4).node));
  const place = { name: cluster.netnsName("node") };
  const socket = await connectInside(place, { address, port: HEALTH_PORT }, { timeoutMs: 1000 });
  const { status, body } = await request(socket, { path, host: "node" }, { timeoutMs: 1000 });
  return { status, body: String(body) };
}
