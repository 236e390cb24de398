/**
 * A model of a cluster's addresses (docs/spec/pod-network.md#3.4, #4.5 to #4.7): three nodes with pods, the controller, and changes of Node
 * objects. Nodes are deleted and come back, machines lose the API server and go on, the cluster collects pods while they run,
 * programs restart. The API server is real; time and the kernel are the model's. ISTHMUS_SOAK=full makes it longer.
 */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import {
  BlockRequestReconciler,
  IpamError,
  KubeBlockSource,
  NodeIpam,
  OrphanCollector,
  PoolManager,
} from "#features/ipam";
import { isKubeError, type KubeApi, KubeError, resources } from "#kube/client";
import { IpamWorld } from "#test/ipam-world";

const log = nullLogger;
const GRACE_MS = 60_000;
const NODES = ["a", "b", "c"];
const RUNS = process.env["ISTHMUS_SOAK"] === "full" ? 300 : 12;
const LONGEST_MS = process.env["ISTHMUS_SOAK"] === "full" ? 3_600_000 : 300_000;
const options = { signal: AbortSignal.timeout(LONGEST_MS) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

type Scene = Awaited<ReturnType<IpamWorld["scene"]>>;

/** A pod as the kernel of its node has it. */
interface Attached {
  readonly pod: string;
  readonly addresses: readonly IpAddress[];
  readonly ifindex: number;
  isCut: boolean;
  /** Its node, and all pods of that node, were away from the API for the grace since the pod had its address. */
  wasForsaken: boolean;
}

/** The API for a machine, which can be disconnected from it. */
function apiOf(machine: { isAway: boolean }, onRequest: (name: string) => Promise<void>): KubeApi {
  const { client } = world;
  return new Proxy(client, {
    get: (_target, name: keyof KubeApi) => {
      const method = client[name];
      return (...args: never[]) => {
        if (machine.isAway) return Promise.reject(new KubeError("unreachable", "cut off"));
        const made = (method as (...args: never[]) => unknown).apply(client, args);
        if (name !== "create" || !(made instanceof Promise)) return made;
        // The controller answers the request.
        return made.then(async (object: { readonly metadata: { readonly name: string } }) => {
          await onRequest(object.metadata.name);
          return object;
        });
      };
    },
  });
}

/** A machine with `coild`; the state of its kernel outlives the program. */
class Machine {
  readonly node: string;
  readonly kernel = new Map<string, Attached>();
  isAway = false;
  /** When its Node object and all pods bound to it began to be away, milliseconds. */
  forsakenSinceMs: number | undefined;
  readonly #scene: Scene;
  readonly #clock: FakeClock;
  readonly #api: KubeApi;
  #ipam: NodeIpam;
  #serial = 0;

  constructor(name: string, scene: Scene, clock: FakeClock, reconcile: (name: string) => Promise<void>) {
    this.node = scene.nodeOf(name);
    this.#scene = scene;
    this.#clock = clock;
    this.#api = apiOf(this, reconcile);
    this.#ipam = this.#start();
  }

  #start(): NodeIpam {
    const source = new KubeBlockSource(
      { api: this.#api, log },
      // An answer comes at once or never.
      { nodeName: this.node, requestTimeoutMs: 2000 },
    );
    const deps = { source, log, clock: this.#clock, onBlocksChanged: () => undefined };
    return new NodeIpam(deps, { collectIntervalMs: 300_000, releaseDelayMs: 0, freedSoonMs: 0 });
  }

  /** Adds a pod of this number, if there is none. `coild` reads the Pod first, so nothing happens while the machine is disconnected. */
  async add(id: number): Promise<void> {
    const containerId = `${this.node}-${id}`;
    if (this.isAway || this.kernel.has(containerId)) return;
    this.#serial += 1;
    const pod = `${this.node}-${id}-${this.#serial}`;
    const spec = { nodeName: this.node, containers: [{ name: "c", image: "none" }] };
    await world.client.create(resources.pods, { metadata: { namespace: "default", name: pod }, spec }, options);
    try {
      const attachment = { containerId, ifname: "eth0" };
      const got = await this.#ipam.allocate(this.#scene.pool, attachment, options);
      const addresses = [got.ipv4, got.ipv6].filter((one) => one !== undefined);
      this.kernel.set(containerId, { pod, addresses, ifindex: this.#serial, isCut: false, wasForsaken: false });
      this.#ipam.settle(attachment);
    } catch (error) {
      if (!(error instanceof IpamError)) throw error;
      await removePod(pod);
    }
  }

  async del(id: number): Promise<void> {
    const containerId = `${this.node}-${id}`;
    const attached = this.kernel.get(containerId);
    if (attached === undefined) return;
    this.kernel.delete(containerId);
    this.#ipam.free({ containerId, ifname: "eth0" });
    await removePod(attached.pod);
  }

  async restart(): Promise<void> {
    this.#ipam = this.#start();
    this.#survey();
    await this.#collect();
  }

  /** The next steps of a running `coild`: the watch's events, a comparison, a survey of the kernel, cutting off and joining. */
  async goOn(): Promise<void> {
    this.#survey();
    if (!this.isAway) {
      const exists = await world.client.get(resources.nodes, { name: this.node }, options).catch(absent);
      this.#ipam.noteNode(exists !== undefined);
      await this.#collect();
    }
    for (const [containerId, attached] of this.kernel) {
      attached.isCut = this.#ipam.isLost({ containerId, ifname: "eth0" }) ?? attached.isCut;
    }
  }

  get blocks(): number {
    return this.#ipam.blocks.length;
  }

  #survey(): void {
    const { pool } = this.#scene;
    this.#ipam.remember(
      [...this.kernel].map(([containerId, { addresses, ifindex }]) => ({
        containerId,
        ifname: "eth0",
        pool,
        addresses,
        ifindex,
      })),
    );
  }

  async #collect(): Promise<void> {
    try {
      await this.#ipam.collect(options);
    } catch (error) {
      if (!(error instanceof IpamError)) throw error;
    }
  }
}

function absent(error: unknown): undefined {
  if (!isKubeError(error, "not-found")) throw error;
}

async function removePod(name: string): Promise<void> {
  const ref = { namespace: "default", name };
  await world.client.delete(resources.pods, ref, { ...options, gracePeriodSeconds: 0 }).catch(absent);
}

const OPS = [
  ...["add", "add", "add", "add", "add", "add", "add", "add", "del", "del", "del"],
  ...["delete-node", "register", "register", "register", "register", "cut-off", "heal", "heal", "collect-pods"],
  ...["wait", "wait", "restart", "new-leader", "register-in-pass"],
  // The conditions for the deletion of a Node's blocks, which are rare at random.
  "give-up",
] as const;

interface Step {
  readonly op: (typeof OPS)[number];
  readonly node: number;
  readonly id: number;
}

class Model {
  readonly machines: readonly Machine[];
  readonly #scene: Scene;
  readonly #clock = new FakeClock();
  #leader: ReturnType<Model["elect"]>;
  /** The count of each kind of event, so that the test fails for a model in which nothing happens. */
  readonly counts = { added: 0, cut: 0, joined: 0, collected: 0 };

  constructor(scene: Scene) {
    this.#scene = scene;
    const reconcile = async (name: string): Promise<void> => {
      await this.#leader.reconciler.reconcile(name, options);
    };
    this.machines = NODES.map((name) => new Machine(name, scene, this.#clock, reconcile));
    this.#leader = this.elect();
  }

  /** The memory of a new controller, which is empty. */
  elect() {
    const api = world.client;
    const pools = new PoolManager({ api, log }, { allocation: "first-fit" });
    return {
      pools,
      reconciler: new BlockRequestReconciler({ api, pools, clock: systemClock, log }),
      collector: new OrphanCollector({ api, log, clock: this.#clock }, { graceMs: GRACE_MS }),
    };
  }

  async run({ op, node, id }: Step): Promise<void> {
    const machine = this.machines[node % this.machines.length];
    assert.ok(machine !== undefined);
    if (op === "add") await this.#add(machine, id);
    if (op === "del") await machine.del(id);
    if (op === "delete-node") await this.#deleteNode(machine);
    if (op === "register") await this.register(machine);
    if (op === "cut-off") machine.isAway = true;
    // The next step may come before the program has noticed.
    if (op === "heal") {
      machine.isAway = false;
      return;
    }
    if (op === "collect-pods") await this.#collectPods();
    if (op === "wait") await this.wait();
    if (op === "give-up") await this.#giveUp(machine);
    if (op === "restart") await machine.restart();
    if (op === "new-leader") this.#leader = this.elect();
    if (op === "register-in-pass") {
      world.client.onNodesListed = async () => {
        world.client.onNodesListed = async () => undefined;
        await this.register(machine);
      };
      await this.wait();
      world.client.onNodesListed = async () => undefined;
    }
    await this.#noteForsaken();
    this.check(op, { settled: false });
    await this.goOn();
    this.check(`after ${op}`, { settled: true });
  }

  /** Every program makes its next pass. */
  async goOn(): Promise<void> {
    const before = this.#cutOff();
    for (const machine of this.machines) await machine.goOn();
    await this.#leader.pools.sync(this.#scene.pool, options);
    const now = this.#cutOff();
    this.counts.cut += [...now].filter((one) => !before.has(one)).length;
    this.counts.joined += [...before].filter((one) => !now.has(one)).length;
  }

  #cutOff(): Set<string> {
    const all = this.machines.flatMap(({ kernel }) => [...kernel.values()]);
    return new Set(all.filter(({ isCut }) => isCut).map(({ pod }) => pod));
  }

  async #add(machine: Machine, id: number): Promise<void> {
    const before = machine.kernel.size;
    await machine.add(id);
    this.counts.added += machine.kernel.size - before;
  }

  async #deleteNode({ node }: Machine): Promise<void> {
    await world.client.delete(resources.nodes, { name: node }, options).catch(absent);
    this.#leader.collector.noteNode(node);
  }

  async register({ node }: Machine): Promise<void> {
    await world.client.create(resources.nodes, { metadata: { name: node } }, options).catch((error: unknown) => {
      if (!isKubeError(error, "already-exists")) throw error;
    });
    this.#leader.collector.noteNode(node);
  }

  /** Deletes the Pod objects of nodes that are gone, as the cluster's pod garbage collector does, whatever runs there. */
  async #collectPods(): Promise<void> {
    const { items } = await world.client.listAll(resources.nodes, options);
    const present = new Set(items.map(({ metadata }) => metadata.name));
    for (const { node, kernel } of this.machines) {
      if (!present.has(node)) for (const { pod } of kernel.values()) await removePod(pod);
    }
  }

  /** The Node is deleted, its Pod objects are too, and more than the grace passes; its machine goes on. */
  async #giveUp(machine: Machine): Promise<void> {
    await this.#deleteNode(machine);
    await this.#collectPods();
    await this.#noteForsaken();
    for (let third = 0; third < 4; third += 1) await this.wait();
  }

  /** A third of the grace passes, with a pass of the controller at its end. */
  async wait(): Promise<void> {
    await this.#clock.advance(GRACE_MS / 3);
    try {
      this.counts.collected += (await this.#leader.collector.collect(options)).deleted;
    } catch (error) {
      if (!(error instanceof IpamError)) throw error;
    }
  }

  async #noteForsaken(): Promise<void> {
    const nodes = new Set(
      (await world.client.listAll(resources.nodes, options)).items.map(({ metadata }) => metadata.name),
    );
    const pods = new Set((await world.client.listAll(resources.pods, options)).items.map(({ spec }) => spec?.nodeName));
    const now = this.#clock.monotonic();
    for (const machine of this.machines) {
      if (nodes.has(machine.node) || pods.has(machine.node)) machine.forsakenSinceMs = undefined;
      else machine.forsakenSinceMs ??= now;
      const isForsaken = machine.forsakenSinceMs !== undefined && now - machine.forsakenSinceMs >= GRACE_MS;
      if (isForsaken) for (const attached of machine.kernel.values()) attached.wasForsaken = true;
    }
  }

  /**
   * No address is on two pods that are in the network. But a machine that is disconnected, or has just come back, cannot know that it
   * has lost its blocks; `settled`: connected machines know.
   */
  check(when: string, { settled }: { readonly settled: boolean }): void {
    const holders = this.machines.flatMap(({ node, kernel, isAway }) =>
      [...kernel.values()]
        .filter(({ isCut, wasForsaken }) => !isCut && !(wasForsaken && (isAway || !settled)))
        .flatMap(({ addresses, pod }) =>
          addresses.map((address) => ({ address: String(address), who: `${pod} on ${node}` })),
        ),
    );
    for (const [address, all] of Map.groupBy(holders, (one) => one.address)) {
      assert.ok(all.length <= 1, `${when}: ${address} is on ${all.map(({ who }) => who).join(" and ")}`);
    }
  }

  /** Every machine is back and every pod deleted: each block goes back. */
  async end(): Promise<void> {
    for (const machine of this.machines) {
      machine.isAway = false;
      await this.register(machine);
    }
    await this.goOn();
    this.check("after all came back", { settled: true });
    for (const machine of this.machines) {
      for (let id = 0; id < 6; id += 1) await machine.del(id);
      assert.equal(machine.kernel.size, 0);
    }
    for (let round = 0; round < 2; round += 1) await this.goOn();
    assert.deepEqual(await this.#scene.blocks(), []);
    for (const machine of this.machines) assert.equal(machine.blocks, 0);
  }
}

test("ipam: whatever happens to Nodes, machines and programs, no address is on two pods, and all go back", {
  timeout: LONGEST_MS,
}, async (t: TestContext) => {
  const step = fc.record({ op: fc.constantFrom(...OPS), node: fc.nat(2), id: fc.nat(5) });
  const total = { added: 0, cut: 0, joined: 0, collected: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 60, maxLength: 120 }), async (steps) => {
      const scene = await world.scene(t, { blockSizeBits: 1, subnets: [{ ipv4: "10.9.0.0/28" }] }, NODES);
      const model = new Model(scene);
      try {
        for (const one of steps) await model.run(one);
        await model.end();
      } finally {
        for (const machine of model.machines) for (const { pod } of machine.kernel.values()) await removePod(pod);
      }
      for (const name of ["added", "cut", "joined", "collected"] as const) total[name] += model.counts[name];
    }),
    { numRuns: RUNS, endOnFailure: true },
  );
  t.diagnostic(JSON.stringify(total));
  for (const [name, count] of Object.entries(total)) assert.ok(count > 0, `nothing was ${name}`);
});

test("ipam: a machine that lost its blocks while disconnected hands out none of their addresses, however soon an ADD comes", async (t) => {
  const scene = await world.scene(t, { blockSizeBits: 1, subnets: [{ ipv4: "10.9.0.0/28" }] }, NODES);
  const model = new Model(scene);
  const steps: readonly Step[] = [
    { op: "add", node: 0, id: 0 },
    { op: "cut-off", node: 0, id: 0 },
    { op: "give-up", node: 0, id: 0 },
    { op: "add", node: 1, id: 0 },
    { op: "add", node: 1, id: 1 },
    { op: "register", node: 0, id: 0 },
    { op: "heal", node: 0, id: 0 },
    { op: "add", node: 0, id: 1 },
  ];
  for (const step of steps) await model.run(step);
  const [first, second] = model.machines.map(({ kernel }) => [...kernel.values()]);
  assert.deepEqual(
    second?.map(({ addresses }) => String(addresses[0])),
    ["10.9.0.0", "10.9.0.1"],
  );
  assert.deepEqual(
    first?.map(({ addresses, isCut }) => [String(addresses[0]), isCut]),
    [
      ["10.9.0.0", true],
      ["10.9.0.2", false],
    ],
  );
  await model.end();
});
