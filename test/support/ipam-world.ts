/**
 * The parts of the IPAM controller, with an API server: the lab's own, or the one of `ISTHMUS_KUBECONFIG`.
 *
 * Owns: the server, Coil's API types in it, pools and nodes of each test, faults, and their removal. Does not know: the tests.
 *
 * ```ts
 * const world = await IpamWorld.open({ signal });
 * const { pool, reconciler, ask, blocks } = await world.scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
 * await reconciler.reconcile(await ask("a"), { signal });
 * assert.equal((await blocks()).length, 1);
 * ```
 */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { BlockRequestReconciler, type KnownCluster, PoolManager } from "#features/ipam";
import {
  isKubeError,
  KubeClient,
  type KubeObject,
  type ListOptions,
  type ListPage,
  loadKubeConfig,
  type ResourceType,
  resources,
} from "#kube/client";
import {
  type AddressBlock,
  type AddressPoolSpec,
  type BlockRequest,
  COIL_FINALIZER,
  coilCrds,
  coilResources,
  POOL_LABEL,
} from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import { type ApiServer, type FaultAction, type FaultMatch, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";
import { unruled } from "#test/unruled";

const { addressBlocks, addressPools, blockRequests } = coilResources;
const log = nullLogger;
/** Reconciliations after which a fault that hits once must be overcome. */
const MAX_TRIES = 5;
/** The reason to skip a test that needs faults, which only the embedded server has. False if it is used. */
export const NO_FAULTS = process.env["ISTHMUS_KUBECONFIG"] !== undefined && "faults need the embedded API server";
/** The first condition of a request that failed. */
export const FAILED = "Complete completed with failure: completed with failure";

/** A client that runs a callback between its list of nodes and its next call. */
export class HookedClient extends KubeClient {
  /** Called after each list of nodes. */
  onNodesListed: () => Promise<unknown> = async () => undefined;

  override async listAll<T extends KubeObject>(type: ResourceType<T>, list: ListOptions = {}): Promise<ListPage<T>> {
    const page = await super.listAll(type, list);
    if (type.plural === resources.nodes.plural) await this.onNodesListed();
    return page;
  }
}

/** An API server with Coil's types. */
export class IpamWorld implements AsyncDisposable {
  readonly client: HookedClient;
  /** The embedded server; undefined if another server is used. */
  readonly server: ApiServer | undefined;
  readonly #folder: string;
  readonly #options: { readonly signal: AbortSignal };
  #serial = 0;

  private constructor(init: {
    readonly client: HookedClient;
    readonly server: ApiServer | undefined;
    readonly folder: string;
    readonly options: { readonly signal: AbortSignal };
  }) {
    this.client = init.client;
    this.server = init.server;
    this.#folder = init.folder;
    this.#options = init.options;
  }

  /** Resolves when Coil's types are served. The signal ends all calls, later ones too. */
  static async open(options: { readonly signal: AbortSignal }): Promise<IpamWorld> {
    const folder = await mkdtemp(join(tmpdir(), "isthmus-ipam-controller-"));
    let path = process.env["ISTHMUS_KUBECONFIG"];
    let server: ApiServer | undefined;
    if (path === undefined) {
      server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log, clock: systemClock });
      path = join(folder, "kubeconfig");
      await writeFile(path, server.kubeconfig());
    }
    const client = new HookedClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
    await serveCoilTypes(client, options);
    return new IpamWorld({ client, server, folder, options });
  }

  /** All blocks and Nodes as they are now. The program has caches instead. */
  async known(): Promise<KnownCluster> {
    const blocks = await this.client.listAll(addressBlocks, this.#options);
    const nodes = await this.client.listAll(resources.nodes, this.#options);
    return { blocks: blocks.items, nodes: new Set(nodes.items.map(({ metadata }) => metadata.name)) };
  }

  /** A pool and nodes for one test, and the parts of the controller; all of it is removed at the end of the test. */
  async scene(t: TestContext, spec: AddressPoolSpec | undefined, nodes = ["a", "b"]) {
    const { client } = this;
    const options = this.#options;
    this.#serial += 1;
    const prefix = `t${process.pid}-${this.#serial}`;
    const pool = `${prefix}-pool`;
    const nodeOf = (name: string): string => `${prefix}-${name}`;
    for (const node of nodes) await client.create(resources.nodes, { metadata: { name: nodeOf(node) } }, options);
    if (spec !== undefined) {
      await client.create(addressPools, { metadata: { name: pool, finalizers: [COIL_FINALIZER] }, spec }, options);
    }
    const pools = new PoolManager({ api: client, log, clock: systemClock }, { allocation: "first-fit" });
    const reconciler = new BlockRequestReconciler({ api: client, pools, clock: systemClock, log });
    t.after(async () => {
      this.server?.faults.clear();
      client.onNodesListed = async () => undefined;
      for (const type of [blockRequests, addressBlocks, addressPools, resources.nodes] as const) {
        await this.removeAll(type as ResourceType<KubeObject>, prefix);
      }
    });
    return {
      pool,
      pools,
      reconciler,
      nodeOf,
      /** A request of a node for a block, not answered yet. */
      ask: async (node: string, name = `req-${pool}-${nodeOf(node)}`): Promise<string> => {
        const request = { metadata: { name }, spec: { nodeName: nodeOf(node), poolName: pool } };
        return (await client.create(blockRequests, request, options)).metadata.name;
      },
      blocks: async (): Promise<AddressBlock[]> => {
        const { items } = await client.listAll(addressBlocks, { ...options, labelSelector: `${POOL_LABEL}=${pool}` });
        return [...items].sort((a, b) => a.index - b.index);
      },
      /** A change of the pool by another client. */
      change: async (to: AddressPoolSpec): Promise<void> => {
        const stored = await client.get(addressPools, { name: pool }, options);
        await client.replace(addressPools, { ...stored, spec: to }, options);
      },
      /** A change by another client under a CRD without rules, such as Coil's own. */
      changeUnruled: async (to: AddressPoolSpec): Promise<void> => {
        for (const crd of coilCrds) await serve(client, unruled(crd), options);
        await until("the pool may be changed", async () => {
          const stored = await client.get(addressPools, { name: pool }, options);
          return (await refused(client.replace(addressPools, { ...stored, spec: to }, options))) === undefined;
        });
        for (const crd of coilCrds) await serve(client, crd, options);
      },
    };
  }

  /** Removes the objects with a text in their names, also with finalizers. */
  async removeAll(type: ResourceType<KubeObject>, prefix: string): Promise<void> {
    const { items } = await this.client.listAll(type, this.#options);
    for (const { metadata } of items.filter((item) => item.metadata.name.includes(prefix))) {
      const body = { metadata: { finalizers: null } };
      await forgiving(this.client.patch(type, { name: metadata.name }, { type: "merge", body }, this.#options));
      await forgiving(this.client.delete(type, { name: metadata.name }, this.#options));
    }
  }

  /** A request as it is now. */
  request(name: string): Promise<BlockRequest> {
    return this.client.get(blockRequests, { name }, this.#options);
  }

  /** A fault that hits the first call it matches, or more if the match has a limit. Only with the embedded server. */
  inject(match: FaultMatch, action: FaultAction): void {
    assert.ok(this.server !== undefined);
    this.server.faults.add({ match: { times: 1, ...match }, action });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close();
    await this.server?.[Symbol.asyncDispose]();
    await rm(this.#folder, { recursive: true });
  }
}

async function serve(client: KubeClient, crd: CrdManifest, options: { readonly signal: AbortSignal }): Promise<void> {
  const body = { type: "apply", body: crd, fieldManager: "test", force: true } as const;
  await client.patch(resources.customResourceDefinitions, { name: crd.metadata.name }, body, options);
}

/** The API server's reason for refusing an object as invalid; undefined if it accepted the object. */
async function refused(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    if (isKubeError(error, "invalid")) return error.message;
    throw error;
  }
}

async function serveCoilTypes(client: KubeClient, options: { readonly signal: AbortSignal }): Promise<void> {
  for (const crd of coilCrds) await serve(client, crd, options);
  await until("Coil's API types are served", async () => {
    try {
      for (const type of Object.values(coilResources)) await client.list(type as ResourceType<KubeObject>, options);
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
  });
}

/** An object that does not exist any more need not be removed. */
async function forgiving(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
}

/** Runs the work like a work queue: again after each failure of the API. Returns the number of failures. */
export async function persist(work: () => Promise<unknown>): Promise<number> {
  for (let failures = 0; ; failures += 1) {
    try {
      await work();
      return failures;
    } catch (error) {
      if (!isKubeError(error) || failures >= MAX_TRIES) throw error;
    }
  }
}

/** Conditions as `type reason: message`. */
export function conditionsOf({ status }: BlockRequest): string[] {
  return (status?.conditions ?? []).map(({ type, status: value, reason, message }) => {
    assert.equal(value, "True");
    return `${type} ${reason}: ${message}`;
  });
}
