/**
 * A cluster as Coil v1 leaves it: an API server with v1's objects, nodes and pods, and v1's data for etcd. A kubelet that the test
 * simulates ends pods.
 *
 * Owns: the server, its objects, the data. Does not know: the migrator, etcd.
 *
 * ```ts
 * await using bed = await MigratorBed.open();
 * await bed.pod("web-1", "node1", "10.0.0.1");
 * await bed.v1Installed(); // true
 * ```
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { repeat } from "#base/reconcile";
import {
  findObject,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type ResourceType,
  resources,
} from "#kube/client";
import { type AddressBlock, coilCrds, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { type ApiServer, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";

const SYSTEM = "kube-system";
const labels = { app: "coil" };
const workload = {
  selector: { matchLabels: labels },
  template: { metadata: { labels }, spec: { containers: [{ name: "c", image: "none" }] } },
};
const rules = [{ apiGroups: [""], resources: ["pods"], verbs: ["get"] }];

/** Objects of v1's installation. */
const V1: readonly (readonly [ResourceType<KubeObject>, object])[] = [
  [resources.daemonSets, { metadata: { namespace: SYSTEM, name: "coil-node" }, spec: workload }],
  [resources.deployments, { metadata: { namespace: SYSTEM, name: "coil-controllers" }, spec: workload }],
  [resources.configMaps, { metadata: { namespace: SYSTEM, name: "coil-config" }, data: {} }],
  ...["coil-node", "coil-controllers"].flatMap((name) => [
    [resources.clusterRoles, { metadata: { name }, rules }] as const,
    [
      resources.clusterRoleBindings,
      {
        metadata: { name },
        roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
        subjects: [],
      },
    ] as const,
  ]),
  ...["coil-node", "coil-controller"].map(
    (name) => [resources.serviceAccounts, { metadata: { namespace: SYSTEM, name } }] as const,
  ),
] as unknown as readonly (readonly [ResourceType<KubeObject>, object])[];

/** The data of v1: two pools, one of two subnets, blocks of node1, node2 and of a deleted node. */
export const V1_DATA: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries({
    "pool/default": { subnets: ["10.0.0.0/24", "10.1.0.0/26"], block_size: 5 },
    "pool/web": { subnets: ["10.2.0.0/28"], block_size: 2 },
    "subnet/10.0.0.0": "",
    "subnet/10.1.0.0": "",
    "subnet/10.2.0.0": "",
    "block/default/10.0.0.0": { free: ["10.0.0.64/27"], nodes: { node1: ["10.0.0.0/27"], gone: ["10.0.0.32/27"] } },
    "block/default/10.1.0.0": { free: null, nodes: { node2: ["10.1.0.32/27"] } },
    "block/web/10.2.0.0": { free: [], nodes: { node1: ["10.2.0.4/30"] } },
    "block/lost/10.9.0.0": { free: [], nodes: { node1: ["10.9.0.0/27"] } },
    "ip/10.0.0.0/1": { namespace: "default", pod: "a", container_id: "1", created_at: "2020-01-01T00:00:00Z" },
  }).map(([key, value]) => [`/coil/${key}`, value === "" ? "" : JSON.stringify(value)]),
);

/** Disposing ends the kubelet and the server. */
export class MigratorBed implements AsyncDisposable {
  readonly server: ApiServer;
  readonly client: KubeClient;
  readonly kubeconfig: string;
  /** Names of pods that never end. */
  readonly stuck = new Set<string>();
  readonly #folder: string;
  readonly #stop = new AbortController();
  readonly #kubelet: Promise<void>;

  private constructor(server: ApiServer, client: KubeClient, folder: string) {
    this.server = server;
    this.client = client;
    this.#folder = folder;
    this.kubeconfig = join(folder, "kubeconfig");
    const { signal } = this.#stop;
    const onFailure = (): void => undefined;
    this.#kubelet = repeat(() => this.#endPods(), { signal, everyMs: 20, clock: systemClock, onFailure });
  }

  /** An API server with nodes node1 and node2, namespace web and v1's objects. */
  static async open(): Promise<MigratorBed> {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-migrator-"));
    const server = await startApiServer({
      listen: { host: "127.0.0.1", port: 0 },
      log: nullLogger,
      clock: systemClock,
    });
    const path = join(folder, "kubeconfig");
    writeFileSync(path, server.kubeconfig());
    const client = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
    const bed = new MigratorBed(server, client, folder);
    try {
      for (const name of ["node1", "node2"]) await client.create(resources.nodes, { metadata: { name } });
      await client.create(resources.namespaces, { metadata: { name: "web" } });
      if ((await findObject(client, resources.namespaces, { name: SYSTEM })) === undefined)
        await client.create(resources.namespaces, { metadata: { name: SYSTEM } });
      await bed.installV1();
      return bed;
    } catch (error) {
      await bed[Symbol.asyncDispose]();
      throw error;
    }
  }

  async installV1(): Promise<void> {
    for (const [type, object] of V1) await this.client.create(type, object as never);
  }

  /** Adds a DaemonSet of `kube-system`. */
  async addDaemonSet(name: string): Promise<void> {
    await this.client.create(resources.daemonSets, { metadata: { namespace: SYSTEM, name }, spec: workload } as never);
  }

  /** The existing objects of v1. */
  async v1Objects(): Promise<string[]> {
    const found: string[] = [];
    for (const [type, object] of V1) {
      const { metadata } = object as KubeObject;
      if ((await findObject(this.client, type, metadata)) !== undefined) found.push(`${type.kind} ${metadata.name}`);
    }
    return found;
  }

  /** Serves the API of v2, as `kubectl apply -f deploy/crds` does. */
  async installCrds(): Promise<void> {
    for (const body of coilCrds) {
      const patch = { type: "apply", body, fieldManager: "test", force: true } as const;
      await this.client.patch(resources.customResourceDefinitions, { name: body.metadata.name }, patch);
    }
    await until("the API of v2 is served", async () => {
      try {
        for (const type of Object.values(coilResources)) await this.client.list(type as ResourceType<KubeObject>);
        return true;
      } catch (error) {
        if (isKubeError(error, "not-found")) return false;
        throw error;
      }
    });
  }

  /** Applies manifests of pools and blocks as kubectl does on the server's side; their names. */
  async apply(manifests: string): Promise<string[]> {
    const types = Object.values(coilResources) as ResourceType<KubeObject>[];
    const names: string[] = [];
    for (const document of parseAllDocuments(manifests)) {
      const body = document.toJS() as KubeObject;
      const type = types.find(({ kind }) => kind === body.kind);
      if (type === undefined) throw new Error(`the manifests have a ${body.kind}`);
      const { name } = body.metadata;
      await this.client.patch(type, { name }, { type: "apply", body, fieldManager: "kubectl" });
      names.push(name);
    }
    return names;
  }

  /** A block from which v2 allocates. */
  async block(name: string, ipv4: string, node: string, index: number): Promise<AddressBlock> {
    const metadata = { name, labels: { [POOL_LABEL]: "default", [NODE_LABEL]: node }, finalizers: ["coil.cybozu.com"] };
    return this.client.create(coilResources.addressBlocks, { metadata, index, ipv4 });
  }

  /** A pod that runs; its UID. */
  async pod(
    name: string,
    node: string,
    podIP: string,
    more: {
      readonly hostNetwork?: boolean;
      readonly labels?: Record<string, string>;
      readonly namespace?: string;
    } = {},
  ): Promise<string> {
    const namespace = more.namespace ?? "default";
    const spec = { nodeName: node, hostNetwork: more.hostNetwork === true, containers: [{ name: "c", image: "none" }] };
    const metadata = { namespace, name, labels: more.labels ?? {} };
    const created = await this.client.create(resources.pods, { metadata, spec });
    if (podIP !== "") await this.setAddress({ namespace, name }, podIP);
    return created.metadata.uid;
  }

  /** The kubelet reports a pod's address. */
  async setAddress(pod: { readonly namespace: string; readonly name: string }, podIP: string): Promise<void> {
    const status = { phase: "Running" as const, podIP, podIPs: [{ ip: podIP }] };
    await this.client.patch(resources.pods, pod, { type: "merge", body: { status } }, { subresource: "status" });
  }

  /** UIDs of pods, by name. */
  async pods(): Promise<Map<string, string>> {
    const { items } = await this.client.listAll(resources.pods);
    return new Map(items.map(({ metadata }) => [metadata.name, metadata.uid]));
  }

  /** Names of blocks. */
  async blocks(): Promise<string[]> {
    const { items } = await this.client.listAll(coilResources.addressBlocks);
    return items.map(({ metadata }) => metadata.name).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#kubelet;
    await this.client.close();
    await this.server[Symbol.asyncDispose]();
    rmSync(this.#folder, { recursive: true });
  }

  /** Ends the pods that are being deleted, as a kubelet does. */
  async #endPods(): Promise<void> {
    const { items } = await this.client.listAll(resources.pods);
    for (const { metadata } of items) {
      const { namespace, name, uid, deletionTimestamp } = metadata;
      if (deletionTimestamp === undefined || this.stuck.has(name)) continue;
      const options = { gracePeriodSeconds: 0, preconditions: { uid } };
      await this.client.delete(resources.pods, { namespace, name }, options);
    }
  }
}
