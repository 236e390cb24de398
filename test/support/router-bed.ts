/**
 * The shipped router of an Egress in a bed of namespaces, with an API server that it reaches, and a client whose tunnels are made.
 *
 * Owns: all of these, removed after the test. Does not know: what tests claim.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { clientScope, planClient, syncNet, type TunnelDriver } from "#features/egress";
import { listenTcp } from "#kernel/socket";
import { type Draft, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { coilCrds, coilResources, type Egress, type EgressSpec } from "#kube/coil";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { connectInside, InsideError, request } from "#lab/inside";
import { ISTHMUS, type Running, start } from "#test/lab";
import { AT, EgressBed, MTU_BYTES, TUNNEL_PORT } from "../../src/features/egress/testing/bed.ts";

export const EGRESS = { namespace: "internet", name: "nat" };
/** The port of the host outside. */
export const SERVED = 8000;
const loopback = IpAddress.parse("127.0.0.1");

/** The destinations of the bed's Egress: those outside of the cluster. */
const DESTINATIONS = ["0.0.0.0/0", "::/0"];
const [ADMIN, ROUTER] = ["of-the-administrator", "of-the-router"];
const USER = "router";
/** The rights of routers: `own` as in our manifests, `coil` as in Coil's, which reads pods alone. */
type Rights = "own" | "coil";

function rightsOf(rights: Rights): readonly SeedObject[] {
  const verbs = ["get", "list", "watch"];
  const coil = { apiGroups: [""], resources: ["pods"], verbs };
  const own = [
    { apiGroups: [""], resources: ["namespaces"], verbs },
    { apiGroups: ["coil.cybozu.com"], resources: ["egresses", "addresspools", "addressblocks"], verbs },
    {
      ...{ apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], resourceNames: ["kubernetes"] },
      verbs: ["list"],
    },
  ];
  const group = "rbac.authorization.k8s.io";
  return [
    {
      apiVersion: `${group}/v1`,
      kind: "ClusterRole",
      metadata: { name: USER },
      rules: rights === "own" ? [coil, ...own] : [coil],
    },
    {
      apiVersion: `${group}/v1`,
      kind: "ClusterRoleBinding",
      metadata: { name: USER },
      roleRef: { apiGroup: group, kind: "ClusterRole", name: USER },
      subjects: [{ kind: "User", apiGroup: group, name: USER }],
    },
  ];
}

/** A bed with an Egress; `run` starts a router of it. Without `driver` the client has no tunnels. */
export async function openRouterBed(t: TestContext, driver?: TunnelDriver, rights: Rights = "own") {
  const bed = new EgressBed();
  const folder = mkdtempSync(join(tmpdir(), "isthmus-egress-"));
  const fd = listenTcp(loopback, 6443, { netns: bed.netns("router") });
  const listen = [
    { host: "127.0.0.1", port: 0 },
    { fd, host: "127.0.0.1" },
  ];
  const tokens = {
    [ADMIN]: { name: "admin", groups: ["system:masters"] },
    [ROUTER]: { name: USER, groups: [] },
  };
  const server = await startApiServer({ listen, tokens, log: nullLogger, clock: systemClock });
  server.seed([...(coilCrds as readonly unknown[] as readonly SeedObject[]), ...rightsOf(rights)]);
  const [here = "", inside = ""] = server.urls;
  const [own, given] = [join(folder, "own"), join(folder, "kubeconfig")];
  writeFileSync(own, server.kubeconfig({ server: here, token: ADMIN }));
  writeFileSync(given, server.kubeconfig({ server: inside, token: ROUTER }));
  const api = new KubeClient(await loadKubeConfig({ path: own, clock: systemClock }), { clock: systemClock });
  await api.create(resources.namespaces, { metadata: { name: EGRESS.namespace } });
  await api.create(coilResources.egresses, {
    metadata: EGRESS,
    spec: { destinations: DESTINATIONS },
  } as Draft<Egress>);
  for (const family of [4, 6] as const) await bed.serve(family, SERVED);
  const running: Running[] = [];
  const run = (...flags: readonly string[]): Running => {
    const argv = [
      "nsenter",
      `--net=${bed.netns("router").path}`,
      ISTHMUS,
      "coil-egress",
      `--kubeconfig=${given}`,
      ...flags,
    ];
    const env = {
      COIL_POD_ADDRESSES: `${AT.router[4]},${AT.router[6]}`,
      COIL_POD_NAMESPACE: EGRESS.namespace,
      COIL_EGRESS_NAME: EGRESS.name,
      HOSTNAME: "nat-1",
    };
    const one = start(argv, { env, timeoutMs: 120_000 });
    running.push(one);
    return one;
  };
  t.after(async () => {
    for (const one of running) one.child.kill("SIGKILL");
    await Promise.all(running.map((one) => one.ended));
    await api.close();
    await server[Symbol.asyncDispose]();
    bed[Symbol.dispose]();
    rmSync(folder, { recursive: true, force: true });
  });
  if (driver !== undefined) await connectClient(bed, driver);
  return { bed, api, run, server };
}

async function connectClient(bed: EgressBed, driver: TunnelDriver): Promise<void> {
  const gateways = ([4, 6] as const).map((family) => ({
    egress: EGRESS,
    address: AT.service[family],
    destinations: [Cidr.parse(family === 4 ? "0.0.0.0/0" : "::/0")],
    sourcePortAuto: true,
    originatingOnly: false,
  }));
  const pod = { addresses: AT.client, ifname: "eth0", mtuBytes: MTU_BYTES };
  const { plan } = planClient(pod, gateways, { driver, port: TUNNEL_PORT, inCluster: [] });
  await syncNet(bed.stack("client"), plan, clientScope(TUNNEL_PORT));
}

/** Makes a Pod with addresses. */
export async function makePod(
  api: KubeClient,
  name: string,
  podIPs: readonly string[],
  { names = EGRESS.name, hostNetwork = false }: { readonly names?: string; readonly hostNetwork?: boolean } = {},
): Promise<void> {
  const made = await api.create(resources.pods, {
    metadata: { name, namespace: "default", annotations: { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: names } },
    spec: { hostNetwork, nodeName: "n", terminationGracePeriodSeconds: 0, containers: [{ name: "c", image: "none" }] },
  } as Draft<Pod>);
  const status = { phase: "Running", podIPs: podIPs.map((ip) => ({ ip })) };
  await api.replaceStatus(resources.pods, { ...made, status });
}

/** Changes the spec of the bed's Egress. */
export async function changeEgress(api: KubeClient, spec: Partial<EgressSpec>): Promise<void> {
  await api.patch(coilResources.egresses, EGRESS, { type: "merge", body: { spec } });
}

/** The addresses that the router has a way back to, sorted. */
export function waysBack(bed: EgressBed): string[] {
  return ([4, 6] as const)
    .flatMap((family) => bed.stack("router").routes.list({ family, table: 118 }))
    .map(({ dst }) => String(dst.base))
    .sort();
}

/** An answer of the router, by a port of its namespace. */
export async function get(
  bed: EgressBed,
  port: number,
  path: string,
): Promise<{ readonly status: number; readonly body: string }> {
  const place = { path: bed.netns("router").path ?? "" };
  const socket = await connectInside(place, { address: loopback, port }, { timeoutMs: 2000 });
  const { status, body } = await request(socket, { path, host: "router" }, { timeoutMs: 2000 });
  return { status, body: String(body) };
}

/** Resolves with true if `/readyz` of the router succeeds. */
export const isReady = async (bed: EgressBed): Promise<boolean> =>
  get(bed, 8081, "/readyz").then(
    ({ status }) => status === 200,
    (error: unknown) => {
      if (!(error instanceof InsideError)) throw error;
      return false;
    },
  );
