/**
 * A foreign cluster, with a lab as a guest: the embedded API server with a lab's controllers, or Kubernetes' own control plane
 * from ISTHMUS_PEERS; with objects of its owner; and all of its objects at a moment, to be compared.
 *
 * Owns: {@link embeddedCluster}, {@link realCluster}, {@link populate}, {@link snapshotOf}. Does not know: the objects of a lab.
 *
 * ```ts
 * await using cluster = await embeddedCluster();
 * await using _owner = await populate(cluster);
 * const before = await snapshotOf(cluster, "isthmus-mine-");
 * ```
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type DaemonSet, type Draft, KubeClient, KubeError, loadKubeConfig, resources } from "#kube/client";
import { type ApiServerOptions, type SeedObject, startApiServer } from "#lab/api-server";
import { Heartbeat, machineCapacity, nodeDraft, nodeStatus } from "#lab/kubelet";
import { runWorkloads } from "#lab/workloads";
import { commandsOf, follow } from "#test/guide";
import { until } from "#test/lab";
import { RealApiServer } from "#test/real-api-server";

const GUEST = "guest";

/** A cluster on loopback, without nodes of its own at first. */
export interface ForeignCluster extends AsyncDisposable {
  /** The kubeconfig of its administrator. */
  readonly kubeconfig: string;
  /** The kubeconfig of a user who has the rights of `deploy/lab/rbac.yaml` once {@link grantRights} was called, and no rights before. */
  readonly guestKubeconfig: string;
  readonly client: KubeClient;
  /** The embedded server refuses a DaemonSet that has no status yet; Kubernetes does not require it. */
  readonly addDaemonSet: (draft: Draft<DaemonSet>) => Promise<unknown>;
}

/** The embedded server, with a scheduler and controllers of workloads of its own. */
export interface EmbeddedCluster extends ForeignCluster {
  readonly folder: string;
  readonly server: Awaited<ReturnType<typeof startApiServer>>;
}

export async function embeddedCluster(
  options: Pick<ApiServerOptions, "listen" | "tls" | "tokens"> = {
    listen: { host: "127.0.0.1", port: 0 },
    tls: "self-signed",
    tokens: { admin: { name: "admin", groups: ["system:masters"] }, guest: { name: GUEST, groups: [] } },
  },
): Promise<EmbeddedCluster> {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-foreign-"));
  const kubeconfig = join(folder, "kubeconfig");
  const server = await startApiServer({ ...options, log: nullLogger, clock: systemClock });
  const guestKubeconfig = join(folder, "guest");
  writeFileSync(kubeconfig, server.kubeconfig());
  writeFileSync(guestKubeconfig, server.kubeconfig({ token: "guest" }));
  const client = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), {
    userAgent: "foreign-cluster",
    clock: systemClock,
  });
  const stop = new AbortController();
  const controllers = runWorkloads({ api: client, log: nullLogger, clock: systemClock }, { signal: stop.signal });
  return {
    kubeconfig,
    guestKubeconfig,
    client,
    folder,
    server,
    addDaemonSet: async (draft) => {
      const status = { currentNumberScheduled: 0, desiredNumberScheduled: 0, numberMisscheduled: 0, numberReady: 0 };
      server.seed([{ apiVersion: "apps/v1", kind: "DaemonSet", ...draft, status } as unknown as SeedObject]);
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await controllers;
      await client.close();
      await server[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}

/** Kubernetes' API server, controller manager and scheduler; see `peersMissing`. */
export async function realCluster(): Promise<ForeignCluster> {
  const server = await RealApiServer.start({ controllers: true, serviceRange: "10.96.0.0/16,fd00:96::/112" });
  return {
    kubeconfig: server.kubeconfigOf("admin"),
    guestKubeconfig: server.kubeconfigOf(GUEST),
    client: server.client,
    addDaemonSet: (draft) => server.client.create(resources.daemonSets, draft),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** Gives the guest the rights that the project has for labs, by the commands of the page. */
export async function grantRights({ kubeconfig }: ForeignCluster): Promise<void> {
  await follow(commandsOf("lab-on-a-cluster.md", "Rights"), { kubeconfig, words: { NAME: GUEST } });
}

/** The name of the owner's Node: one that a lab would like to have. */
export const OWNERS_NODE = "node1";
/** Tolerates every taint, as a cluster's network plugin does. */
export const OWNERS_DAEMON_SET = "everywhere";
/** Tolerates nothing, and has more pods than nodes. */
export const OWNERS_DEPLOYMENT = "shop";
const OWNERS_NAMESPACE = "dual";
const OWNERS_REPLICAS = 5;

/** Objects of the owner, under the names that labs have on their own servers; its Node lives until the answer is disposed. */
export async function populate({ client, addDaemonSet }: ForeignCluster): Promise<AsyncDisposable> {
  const settings = { name: OWNERS_NODE, addresses: ["192.0.2.1"], labels: { owner: "somebody" }, taints: [] };
  const namespace = OWNERS_NAMESPACE;
  await client.create(resources.namespaces, { metadata: { name: namespace, annotations: { of: "somebody" } } });
  await client.create(resources.nodes, nodeDraft(settings));
  const status = nodeStatus(settings, machineCapacity(), Date.now());
  const merge = { type: "merge", body: { status } } as const;
  await client.patch(resources.nodes, { name: OWNERS_NODE }, merge, { subresource: "status" });
  const heart = new Heartbeat(
    {
      api: client,
      createLease: (draft, at) => client.create(resources.leases, draft, at),
      log: nullLogger,
      clock: systemClock,
    },
    { node: OWNERS_NODE },
  );
  await heart.ready({});
  const template = (app: string, more: object = {}) => ({
    metadata: { labels: { app } },
    spec: { containers: [{ name: "main", image: "example.com/app" }], ...more },
  });
  const of = (app: string) => ({ selector: { matchLabels: { app } }, revisionHistoryLimit: 1 });
  await addDaemonSet({
    metadata: { name: OWNERS_DAEMON_SET, namespace },
    spec: { ...of("everywhere"), template: template("everywhere", { tolerations: [{ operator: "Exists" }] }) },
  });
  await client.create(resources.deployments, {
    metadata: { name: OWNERS_DEPLOYMENT, namespace },
    // No kubelet runs its pods; the deadline is longer than a test.
    spec: { ...of("shop"), replicas: OWNERS_REPLICAS, progressDeadlineSeconds: 86_400, template: template("shop") },
  });
  await client.create(resources.services, {
    metadata: { name: "web", namespace },
    spec: { selector: { app: "shop" }, ports: [{ port: 80 }] },
  });
  const bound = async (): Promise<number> => {
    const { items } = await client.listAll(resources.pods, { namespace });
    return items.filter(({ spec }) => spec?.nodeName === OWNERS_NODE).length;
  };
  await until("the owner's pods are bound", async () => (await bound()) === OWNERS_REPLICAS + 1);
  const stop = new AbortController();
  const beating = heart.run({ signal: stop.signal });
  return {
    async [Symbol.asyncDispose]() {
      stop.abort();
      await beating;
    },
  };
}

interface Listed {
  readonly kind?: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

/** Fields that change by themselves. */
const FLEETING = new Set(["resourceVersion", "managedFields", "renewTime", "lastHeartbeatTime", "lastProbeTime"]);
/** Types that are not stored: the server makes their objects for each request. */
const MADE_UP = new Set(["componentstatuses"]);

/**
 * Every object of every type, as text by type and name. Of Events only those that name something with `prefix`: a cluster writes others at
 * any time.
 */
export async function snapshotOf(
  { client }: Pick<ForeignCluster, "client">,
  prefix: string,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const path of await listPaths(client)) {
    const type = path.split("/").at(-1) ?? "";
    if (MADE_UP.has(type)) continue;
    for (const object of await listAt(client, path)) {
      const text = JSON.stringify(object, (key, value) => (FLEETING.has(key) ? undefined : value), 1);
      if (type === "events" && !text.includes(prefix)) continue;
      found.set(`${path} ${object.metadata.namespace ?? ""}/${object.metadata.name}`, text);
    }
  }
  return found;
}

/** The differences, one line each. */
export function differences(before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>): string[] {
  return [...new Set([...before.keys(), ...after.keys()])].flatMap((key) => {
    const [was, is] = [before.get(key), after.get(key)];
    if (was === is) return [];
    if (was === undefined) return [`${key} is there`];
    return [is === undefined ? `${key} is gone` : `${key} was ${was}\nand is ${is}`];
  });
}

/** The collections of all types that can be listed, in the version that the server prefers. */
async function listPaths(client: KubeClient): Promise<string[]> {
  const { groups } = (await client.request({ method: "GET", path: "/apis" })) as {
    readonly groups: readonly { readonly preferredVersion: { readonly groupVersion: string } }[];
  };
  const roots = ["/api/v1", ...groups.map(({ preferredVersion }) => `/apis/${preferredVersion.groupVersion}`)];
  const lists = await Promise.all(
    roots.map(async (root) => {
      const { resources: all } = (await orNothing(client.request({ method: "GET", path: root }), {
        resources: [],
      })) as {
        readonly resources: readonly { readonly name: string; readonly verbs: readonly string[] }[];
      };
      return all
        .filter(({ name, verbs }) => verbs.includes("list") && !name.includes("/"))
        .map(({ name }) => `${root}/${name}`);
    }),
  );
  return lists.flat();
}

async function listAt(client: KubeClient, path: string): Promise<readonly Listed[]> {
  const { items } = (await orNothing(client.request({ method: "GET", path }), { items: [] })) as {
    readonly items: readonly Listed[] | null;
  };
  return items ?? [];
}

/** A type that is deleted while it is listed has no objects. */
async function orNothing(asked: Promise<unknown>, nothing: unknown): Promise<unknown> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof KubeError && error.code === "not-found") return nothing;
    throw error;
  }
}
