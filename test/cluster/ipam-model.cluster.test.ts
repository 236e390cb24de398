/**
 * A model of a cluster's addresses (docs/spec/pod-network.md#3, #4 and #20): three nodes with pods, the controller, and everything that
 * happens to them. The runtime calls ADD, DEL, CHECK and GC. `coild` is killed between any two of its calls, calls to the API and the kernel
 * fail, machines reboot, are cut off from the API and come back. Nodes are deleted and registered again, the cluster collects pods while they run.
 * Pools are extended, deleted and made again; blocks are reserved, deleted and forced away by hand. The API server is real; time and the kernels
 * are the model's, and who has an address is read from the kernels alone.
 *
 * The seed is printed. `ISTHMUS_SEED=N` runs the same steps again; `ISTHMUS_SOAK=full` makes 10,000 of them, `ISTHMUS_STEPS=N` so many.
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { audit, BlockRequestReconciler, IpamError, OrphanCollector, PoolManager, reconcilePool } from "#features/ipam";
import { isKubeError, type KubeApi, type KubeError, resources } from "#kube/client";
import {
  type AddressBlock,
  type AddressPoolSpec,
  COIL_FINALIZER,
  coilResources,
  NODE_LABEL,
  POOL_LABEL,
  RESERVED_LABEL,
} from "#kube/coil";
import { type Called, type Held, Machine } from "#test/ipam-machine";
import { ApiPath, Life, mortalApi } from "#test/ipam-mortal";
import { IpamWorld } from "#test/ipam-world";
import { until } from "#test/lab";

const log = nullLogger;
const { addressBlocks, addressPools, blockRequests } = coilResources;
const GRACE_MS = 60_000;
const NODES = ["a", "b", "c"];
const PODS = 6;
const FULL = process.env["ISTHMUS_SOAK"] === "full";
/** Steps of the whole test, and of one scene of it, after which everything has to go back. */
const STEPS = Number(process.env["ISTHMUS_STEPS"] ?? (FULL ? 10_000 : 700));
const STEPS_OF_SCENE = 175;
const SEED = Number(process.env["ISTHMUS_SEED"] ?? randomInt(2 ** 31));
const LONGEST_MS = 3_600_000;
const POOL: AddressPoolSpec = { blockSizeBits: 1, subnets: [{ ipv4: "10.9.0.0/28", ipv6: "fd09::/124" }] };
/** The pool has this many subnets at most. */
const MAX_SUBNETS = 3;
const options = { signal: AbortSignal.timeout(LONGEST_MS) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

type Scene = Awaited<ReturnType<IpamWorld["scene"]>>;

function absent(error: unknown): undefined {
  if (!isKubeError(error, "not-found")) throw error;
}

/** Each operation and its weight. */
const OPS = {
  add: 30,
  del: 8,
  check: 6,
  "add-again": 4,
  burst: 4,
  gc: 3,
  forget: 1,
  "lose-namespace": 1,
  "lose-sandbox": 1,
  "failed-del": 2,
  "remove-link": 1,
  kill: 2,
  "kill-in-add": 2,
  "kill-in-del": 1,
  "kill-in-start": 1,
  "api-fault": 3,
  "kernel-fault": 2,
  reboot: 1,
  "cut-off": 1,
  heal: 2,
  "delete-node": 1,
  register: 4,
  "collect-pods": 1,
  "register-in-pass": 1,
  // The conditions for the deletion of a Node's blocks, which are rare at random.
  "give-up": 1,
  wait: 2,
  "new-leader": 1,
  "controller-fault": 1,
  "controller-away": 1,
  "append-subnet": 1,
  "forbidden-edit": 1,
  reserve: 1,
  unreserve: 2,
  "delete-block": 1,
  "force-block-away": 1,
  "delete-pool": 1,
  "drain-pool": 1,
} as const;
type Op = keyof typeof OPS;

/** Operations after which a fault may be left that has hit nothing, or a process that is dead; each program then recovers. */
const FAULTS: ReadonlySet<Op> = new Set([
  "failed-del",
  "kill-in-add",
  "kill-in-del",
  "kill-in-start",
  "api-fault",
  "kernel-fault",
  "controller-fault",
  "controller-away",
]);

interface Step {
  readonly op: Op;
  readonly node: number;
  readonly id: number;
  /** After how many calls it happens, where something happens in the middle. */
  readonly at: number;
}

/** Operations that need no `coild`: it is started before the others. */
const WITHOUT_COILD: ReadonlySet<Op> = new Set([
  "wait",
  "delete-node",
  "collect-pods",
  "give-up",
  "new-leader",
  "kill",
  "reboot",
  "kill-in-start",
]);

class Model {
  readonly machines: readonly Machine[];
  readonly #scene: Scene;
  readonly #clock = new FakeClock();
  readonly #path = new ApiPath();
  #leader: ReturnType<Model["elect"]>;
  /** The controller answers no request. */
  #isControllerAway = false;
  /** Nodes of the cluster, and pods with their nodes: the model is the only one that writes them. */
  readonly #nodes = new Set<string>();
  readonly #pods = new Map<string, string>();
  /** The pool was changed, and the controller has not looked at it. */
  #isPoolChanged = true;
  #step = 0;
  /** The pool is deleted; every pod goes at this step. */
  #drainAt: number | undefined;
  #spec = POOL;
  /** Blocks by UID, as the leader's watch last saw them. */
  #blocks: ReadonlyMap<string, AddressBlock> = new Map();
  /** The count of each kind of event, so that the test fails for a model in which nothing happens. */
  readonly counts = {
    added: 0,
    refused: 0,
    cut: 0,
    joined: 0,
    collected: 0,
    killed: 0,
    drained: 0,
    ...{ checked: 0, remade: 0, reserved: 0, grown: 0, audited: 0 },
  };

  constructor(scene: Scene) {
    this.#scene = scene;
    for (const name of NODES) this.#nodes.add(scene.nodeOf(name));
    const deps = {
      api: world.client,
      clock: this.#clock,
      pool: scene.pool,
      signal: options.signal,
      onWritten: async (method: keyof KubeApi, args: readonly unknown[], answer: unknown): Promise<void> => {
        this.#noteWrite(args[0], answer);
        if (method !== "create" || args[0] !== blockRequests || this.#isControllerAway) return;
        await this.#answer((answer as { readonly metadata: { readonly name: string } }).metadata.name);
      },
      createPod: async (name: string, node: string): Promise<void> => {
        const spec = { nodeName: node, containers: [{ name: "c", image: "none" }] };
        await world.client.create(resources.pods, { metadata: { namespace: "default", name }, spec }, options);
        this.#pods.set(name, node);
      },
      removePod: (name: string): Promise<void> => this.#removePod(name),
      nodeExists: (node: string): boolean => this.#nodes.has(node),
    };
    this.machines = NODES.map((name, at) => new Machine(scene.nodeOf(name), at, deps));
    this.#leader = this.elect();
  }

  /** A program has written a block: the watch of its node says so. A deletion is answered without the object. */
  #noteWrite(type: unknown, answer: unknown): void {
    if (type !== addressBlocks) return;
    const node = (answer as Partial<AddressBlock>).metadata?.labels?.[NODE_LABEL];
    this.#noteChange(({ node: one }) => node === undefined || one === node);
  }

  /** Something was written that these machines watch. */
  #noteChange(watches: (machine: Machine) => boolean = () => true): void {
    for (const machine of this.machines) if (watches(machine)) machine.isBehind = true;
  }

  /** A new controller, whose memory is empty. */
  elect() {
    const onWritten = async (_method: unknown, args: readonly unknown[], answer: unknown): Promise<void> =>
      this.#noteWrite(args[0], answer);
    const api = mortalApi(world.client, { path: this.#path, life: new Life(), onWritten });
    const pools = new PoolManager({ api, log, clock: systemClock }, { allocation: "first-fit" });
    this.#isPoolChanged = true;
    return {
      api,
      pools,
      reconciler: new BlockRequestReconciler({ api, pools, clock: systemClock, log }),
      collector: new OrphanCollector(
        { api, known: () => world.known(), log, clock: this.#clock },
        { graceMs: GRACE_MS },
      ),
    };
  }

  async run(step: Step): Promise<void> {
    this.#step += 1;
    const machine = this.machines[step.node % this.machines.length];
    assert.ok(machine !== undefined);
    if (!machine.isUp && !WITHOUT_COILD.has(step.op)) await machine.start();
    if (this.#drainAt !== undefined && this.#step >= this.#drainAt) await this.#drain();
    await this.#do(step, machine);
    this.#noteForsaken();
    // The next step may come before the program has noticed.
    if (step.op === "heal") return;
    this.#check(step.op, { settled: false });
    await this.goOn();
    if (FAULTS.has(step.op)) {
      for (const one of this.machines) {
        one.calm();
        if (one.isUp) continue;
        this.counts.killed += 1;
        await one.start();
      }
      await this.#recoverController();
      await this.goOn();
    }
    this.#check(`after ${step.op}`, { settled: true });
    if (this.#step % 10 === 0) await this.#audit(`after ${step.op}`);
  }

  /** Every program makes its next pass. */
  async goOn(): Promise<void> {
    const before = this.#cutOff();
    for (const machine of this.machines) {
      if (machine.isUp) await machine.delLeaving();
      await machine.goOn();
    }
    await this.#watchBlocks();
    if (this.#isPoolChanged || this.#drainAt !== undefined) {
      this.#isPoolChanged = false;
      const { api, pools } = this.#leader;
      await this.#persist(() => reconcilePool({ api, pools, log }, this.#scene.pool, options));
    }
    const now = this.#cutOff();
    this.counts.cut += [...now].filter((one) => !before.has(one)).length;
    this.counts.joined += [...before].filter((one) => !now.has(one)).length;
  }

  async #do(step: Step, machine: Machine): Promise<void> {
    const { op, id, at } = step;
    const sandbox = machine.sandboxes.get(id);
    const any = [...machine.sandboxes.values()][id % Math.max(machine.sandboxes.size, 1)];
    const how = at % 2 === 0 ? "refused" : "lost";
    switch (op) {
      case "add":
        return this.#add(machine, id);
      case "del":
        return this.#del(machine, id);
      case "check": {
        if (any === undefined || !machine.isReady) return;
        const { ok, why } = whyOf(await machine.check(any));
        const isWhole = machine.held().some((one) => one.sandbox === any && !one.isCut);
        assert.equal(ok, isWhole, `CHECK of ${any.containerId}: ${why}`);
        this.counts.checked += 1;
        return;
      }
      case "add-again":
        if (any !== undefined && !machine.isAway) await machine.addAgain(any);
        return;
      case "burst": {
        const ids = [id, (id + 1) % PODS, (id + 2) % PODS, (id + 3) % PODS];
        await Promise.all(
          ids.map((one) => (machine.sandboxes.has(one) ? this.#del(machine, one) : this.#add(machine, one))),
        );
        return;
      }
      case "gc": {
        const called = await machine.gc();
        assert.ok(called.ok || !machine.isUp, whyOf(called).why);
        return;
      }
      case "forget":
        return machine.forget(id);
      case "lose-namespace":
        return machine.loseNamespace(id);
      case "lose-sandbox":
        return machine.loseSandbox(id);
      case "failed-del": {
        if (any === undefined || !machine.isReady) return;
        machine.failKernel("links.delete");
        const [number = 0] = [...machine.sandboxes].find(([, one]) => one === any) ?? [];
        const called = await machine.del(number);
        assert.ok(!called.ok, `DEL of ${any.containerId} succeeded although its link could not be deleted`);
        // The address must not be given out while the link is there.
        for (let one = 0; one < PODS; one += 1) if (one !== number) await this.#add(machine, one, { isExcused: true });
        return;
      }
      case "remove-link":
        machine.removeLink(id);
        this.counts.remade += sandbox === undefined ? 0 : 1;
        return;
      case "kill":
        this.counts.killed += machine.isUp ? 1 : 0;
        return machine.kill();
      case "kill-in-add":
        machine.dieAfter(at);
        return this.#add(machine, id, { isExcused: true });
      case "kill-in-del":
        machine.dieAfter(at % 8);
        if (sandbox !== undefined) await machine.del(id);
        return;
      case "kill-in-start":
        machine.kill();
        return machine.start(at);
      case "api-fault":
        machine.path.failAfter(at % 8, how);
        return this.#add(machine, id, { isExcused: true });
      case "kernel-fault":
        machine.failKernel(KERNEL_FAULTS[at % KERNEL_FAULTS.length] ?? "links.create");
        if (sandbox === undefined) await this.#add(machine, id, { isExcused: true });
        else await machine.del(id);
        return;
      case "reboot":
        return machine.reboot();
      case "cut-off":
        machine.path.isCut = true;
        return;
      case "heal":
        machine.path.isCut = false;
        return;
      case "delete-node":
        return this.#deleteNode(machine);
      case "register":
        return this.#register(machine);
      case "collect-pods":
        return this.#collectPods();
      case "register-in-pass":
        world.client.onNodesListed = async () => {
          world.client.onNodesListed = async () => undefined;
          await this.#register(machine);
        };
        await this.#wait();
        world.client.onNodesListed = async () => undefined;
        return;
      case "give-up":
        return this.#giveUp(machine);
      case "wait":
        return this.#wait();
      case "new-leader":
        this.#leader = this.elect();
        return;
      case "controller-fault":
        this.#path.failAfter(at % 8, how);
        return this.#add(machine, id, { isExcused: true });
      case "controller-away":
        this.#isControllerAway = true;
        if (!machine.isAway && sandbox === undefined) await machine.add(id, { isImpatient: true });
        return;
      case "append-subnet":
        return this.#append();
      case "forbidden-edit":
        return this.#forbiddenEdit(at);
      case "reserve":
        return this.#label(at, "true");
      case "unreserve":
        return this.#label(at, null);
      case "delete-block":
        return this.#deleteBlock(at);
      case "force-block-away":
        return this.#forceBlock(at);
      case "delete-pool":
        return this.#deletePool();
      case "drain-pool":
        await this.#deletePool();
        return this.#drain();
    }
  }

  async #add(machine: Machine, id: number, { isExcused = false } = {}): Promise<void> {
    if (machine.isAway || machine.sandboxes.has(id)) return;
    const mayFail = isExcused || !machine.isReady;
    const called = await machine.add(id);
    assert.ok(!called.ok || !machine.isNodeGone, `${machine.node} gave an address out although its Node is gone`);
    if (called.ok) {
      this.counts.added += 1;
      return;
    }
    this.counts.refused += 1;
    if (mayFail || !this.#nodes.has(machine.node)) return;
    assert.match(called.why, /no free block|does not have free blocks|does not exist/, machine.node);
    if (this.#drainAt !== undefined) return;
    const blocks = await this.#scene.blocks();
    assert.equal(blocks.length, this.#spec.subnets.length * 8, `an ADD failed although blocks are free: ${called.why}`);
  }

  async #del(machine: Machine, id: number): Promise<void> {
    if (!machine.sandboxes.has(id)) return;
    const called = await machine.del(id);
    assert.ok(called.ok || !machine.isUp, `DEL of ${id} on ${machine.node}: ${whyOf(called).why}`);
  }

  async #answer(name: string): Promise<void> {
    await this.#persist(() => this.#leader.reconciler.reconcile(name, options));
  }

  /** As a work queue does: again after a failure of the API. */
  async #persist(work: () => Promise<unknown>): Promise<void> {
    for (let tries = 0; ; tries += 1) {
      try {
        await work();
        return;
      } catch (error) {
        if (!isKubeError(error) || tries >= 3) throw error;
      }
    }
  }

  /** A controller that was away answers what waits for it. */
  async #recoverController(): Promise<void> {
    this.#path.heal();
    if (!this.#isControllerAway) return;
    this.#isControllerAway = false;
    for (const name of await this.#requests()) await this.#answer(name);
    // The ADD was given up; its request goes on.
    await until("coild has taken what it requested", async () => (await this.#requests()).length === 0, { everyMs: 5 });
  }

  async #requests(): Promise<string[]> {
    const { items } = await world.client.listAll(blockRequests, options);
    return items.filter(({ spec }) => spec?.poolName === this.#scene.pool).map(({ metadata }) => metadata.name);
  }

  async #deleteNode({ node }: Machine): Promise<void> {
    await world.client.delete(resources.nodes, { name: node }, options).catch(absent);
    this.#nodes.delete(node);
    this.#noteChange((machine) => machine.node === node);
    this.#leader.collector.noteNode(node);
  }

  async #register({ node }: Machine): Promise<void> {
    if (!this.#nodes.has(node)) await world.client.create(resources.nodes, { metadata: { name: node } }, options);
    this.#nodes.add(node);
    this.#noteChange((machine) => machine.node === node);
    this.#leader.collector.noteNode(node);
  }

  async #removePod(name: string): Promise<void> {
    if (!this.#pods.delete(name)) return;
    const ref = { namespace: "default", name };
    await world.client.delete(resources.pods, ref, { ...options, gracePeriodSeconds: 0 });
  }

  /** Deletes the Pod objects of nodes that are gone, as the cluster's pod garbage collector does, whatever runs there. */
  async #collectPods(): Promise<void> {
    for (const [pod, node] of this.#pods) if (!this.#nodes.has(node)) await this.#removePod(pod);
  }

  /** The Node is deleted, its Pod objects are too, and more than the grace passes; its machine goes on. */
  async #giveUp(machine: Machine): Promise<void> {
    await this.#deleteNode(machine);
    await this.#collectPods();
    this.#noteForsaken();
    for (let third = 0; third < 4; third += 1) await this.#wait();
  }

  /** A third of the grace passes, with a pass of the controller at its end. */
  async #wait(): Promise<void> {
    await this.#clock.advance(GRACE_MS / 3);
    try {
      this.counts.collected += (await this.#leader.collector.collect(options)).deleted;
    } catch (error) {
      if (!(error instanceof IpamError)) throw error;
    }
    this.#noteForsaken();
  }

  #noteForsaken(): void {
    const podsOn = new Set(this.#pods.values());
    const now = this.#clock.monotonic();
    for (const machine of this.machines) {
      if (this.#nodes.has(machine.node) || podsOn.has(machine.node)) machine.forsakenSinceMs = undefined;
      else machine.forsakenSinceMs ??= now;
      const isForsaken = machine.forsakenSinceMs !== undefined && now - machine.forsakenSinceMs >= GRACE_MS;
      if (isForsaken) for (const { sandbox } of machine.held()) sandbox.mayBeTwice = true;
    }
  }

  async #append(): Promise<void> {
    const at = this.#spec.subnets.length;
    if (this.#drainAt !== undefined || at >= MAX_SUBNETS) return;
    const subnets = [...this.#spec.subnets, { ipv4: `10.9.${at}.0/28`, ipv6: `fd09:0:0:${at}::/124` }];
    this.#spec = { ...this.#spec, subnets };
    await this.#scene.change(this.#spec);
    this.#isPoolChanged = true;
    this.#noteChange();
    this.counts.grown += 1;
  }

  /** What would take addresses away from pods is refused, whatever state the pool is in. */
  async #forbiddenEdit(at: number): Promise<void> {
    const { subnets } = this.#spec;
    const edits: AddressPoolSpec[] = [
      { ...this.#spec, blockSizeBits: 2 },
      { ...this.#spec, subnets: [{ ipv4: "10.9.0.0/27", ipv6: "fd09::/123" }, ...subnets.slice(1)] },
      { ...this.#spec, subnets: subnets.slice(1) },
    ];
    const edit = edits[at % edits.length] ?? POOL;
    // A pool that is being deleted goes with its last block.
    const codes = this.#drainAt === undefined ? (["invalid"] as const) : (["invalid", "not-found"] as const);
    await assert.rejects(this.#scene.change(edit), (error: KubeError) => isKubeError(error, ...codes));
  }

  /** A block of the pool, whose choice depends on the step alone. */
  async #block(at: number): Promise<AddressBlock | undefined> {
    const blocks = await this.#scene.blocks();
    return blocks[at % Math.max(blocks.length, 1)];
  }

  async #label(at: number, value: "true" | null): Promise<void> {
    for (const block of value === null ? await this.#scene.blocks() : [await this.#block(at)]) {
      if (block === undefined || (value === null) === (block.metadata.labels?.[RESERVED_LABEL] === undefined)) continue;
      const body = { metadata: { labels: { [RESERVED_LABEL]: value } } };
      await world.client.patch(addressBlocks, { name: block.metadata.name }, { type: "merge", body }, options);
      this.#noteChange();
      this.counts.reserved += 1;
    }
  }

  /** An operator deletes a block; its finalizer holds it while it is in use. */
  async #deleteBlock(at: number): Promise<void> {
    const block = await this.#block(at);
    if (block === undefined) return;
    await world.client.delete(addressBlocks, { name: block.metadata.name }, options);
    this.#noteChange();
  }

  /** An operator takes the finalizer away too: pods of the block are cut off, and the block is carved again. */
  async #forceBlock(at: number): Promise<void> {
    const block = await this.#block(at);
    if (block === undefined) return;
    const cidr = Cidr.parse(block.ipv4 ?? "");
    for (const { sandbox, addresses } of this.machines.flatMap((machine) => machine.held())) {
      if (addresses.some((one) => !one.includes(":") && cidr.contains(IpAddress.parse(one)))) sandbox.mayBeTwice = true;
    }
    const { name } = block.metadata;
    const body = { metadata: { finalizers: null } };
    await world.client.patch(addressBlocks, { name }, { type: "merge", body }, options);
    await world.client.delete(addressBlocks, { name }, options).catch(absent);
    this.#noteChange();
  }

  async #deletePool(): Promise<void> {
    if (this.#drainAt !== undefined) return;
    await world.client.delete(addressPools, { name: this.#scene.pool }, options);
    this.#drainAt = this.#step + 10;
    this.#isPoolChanged = true;
    this.#noteChange();
  }

  /** The pool is deleted: with its last pod it goes, and can be made anew with other subnets. */
  async #drain(): Promise<void> {
    if (this.#drainAt === undefined) return;
    await this.#empty();
    assert.deepEqual(
      (await this.#scene.blocks()).map(({ metadata }) => metadata.name),
      [],
    );
    const left = await world.client.get(addressPools, { name: this.#scene.pool }, options).catch(absent);
    assert.equal(left, undefined, "the pool has no block, and is there");
    this.#spec = POOL;
    const metadata = { name: this.#scene.pool, finalizers: [COIL_FINALIZER] };
    await world.client.create(addressPools, { metadata, spec: POOL }, options);
    this.#drainAt = undefined;
    this.#isPoolChanged = true;
    this.#noteChange();
    this.counts.drained += 1;
  }

  /** The leader's watch has the deletions of blocks since the last time. */
  async #watchBlocks(): Promise<void> {
    const blocks = new Map((await this.#scene.blocks()).map((block) => [block.metadata.uid, block]));
    for (const [uid, block] of this.#blocks) if (!blocks.has(uid)) this.#leader.pools.noteBlockGone(block);
    this.#blocks = blocks;
  }

  #cutOff(): Set<string> {
    const all = this.machines.flatMap((machine) => machine.held());
    return new Set(all.filter(({ isCut }) => isCut).map(({ sandbox }) => sandbox.containerId));
  }

  /**
   * No address is on two pods that are in the network. But a machine that is disconnected, has no `coild`, or has just come back, cannot
   * know that it has lost its blocks; `settled`: the others know, and every pod has what its ADD has answered.
   */
  #check(when: string, { settled }: { readonly settled: boolean }): void {
    const holders: { readonly address: string; readonly who: string }[] = [];
    for (const machine of this.machines) {
      const knows = settled && machine.isReady && !machine.isAway;
      for (const held of machine.held()) {
        if (knows) this.#checkWhole(when, machine, held);
        if (held.isCut || (held.sandbox.mayBeTwice && !knows)) continue;
        const who = `${held.sandbox.containerId} on ${machine.node}`;
        for (const address of held.addresses) holders.push({ address, who });
      }
    }
    for (const [address, all] of Map.groupBy(holders, (one) => one.address)) {
      assert.ok(all.length <= 1, `${when}: ${address} is on ${all.map(({ who }) => who).join(" and ")}`);
    }
  }

  #checkWhole(when: string, machine: Machine, { sandbox, addresses, isCut }: Held): void {
    if (![...machine.sandboxes.values()].includes(sandbox)) return;
    assert.deepEqual(addresses, sandbox.addresses, `${when}: ${sandbox.containerId} has not what its ADD answered`);
    assert.ok(!isCut || sandbox.mayBeTwice, `${when}: ${sandbox.containerId} is cut off without a reason`);
  }

  /** API, memory and kernel of each machine that knows its blocks agree, and the kernel has the pods of the runtime alone. */
  async #audit(when: string): Promise<void> {
    const { items } = await world.client.listAll(addressBlocks, {
      ...options,
      labelSelector: `${POOL_LABEL}=${this.#scene.pool}`,
    });
    const blocks = items.map(({ metadata, ipv4, ipv6 }) => ({
      name: metadata.name,
      uid: metadata.uid,
      pool: this.#scene.pool,
      node: metadata.labels?.[NODE_LABEL] ?? "",
      ipv4,
      ipv6,
      deleting: false,
    }));
    for (const machine of this.machines) {
      const held = machine.held();
      const isSure = machine.isReady && !machine.isAway && this.#nodes.has(machine.node);
      if (!isSure || held.some(({ isCut }) => isCut)) continue;
      const pods = held.map(({ sandbox, addresses }) => {
        return { namespace: "default", name: sandbox.pod, node: machine.node, ips: addresses };
      });
      const nodeNames = [...new Set([...this.#nodes, ...blocks.map(({ node }) => node)])];
      const all = audit({ blocks, pods, nodeNames, nodes: [machine.inspect()] });
      const findings = all.filter(({ text }) => !machine.vanished.has(text.split("/")[0] ?? ""));
      assert.deepEqual(findings, [], `${when}: audit of ${machine.node}`);
      this.counts.audited += 1;
    }
  }

  /** Every machine is back, every pod is deleted, and the runtimes have collected what they lost. */
  async #empty(): Promise<void> {
    for (const machine of this.machines) {
      machine.calm();
      machine.path.isCut = false;
      await this.#register(machine);
      if (!machine.isUp) await machine.start();
    }
    await this.#recoverController();
    await this.#label(0, null);
    await this.goOn();
    this.#check("after all came back", { settled: true });
    for (const machine of this.machines) {
      for (const id of [...machine.sandboxes.keys()]) await this.#del(machine, id);
      const called = await machine.gc();
      assert.ok(called.ok, whyOf(called).why);
    }
    for (let round = 0; round < 3; round += 1) {
      await this.#clock.advance(GRACE_MS / 6);
      this.#noteChange();
      await this.goOn();
    }
    for (const machine of this.machines) {
      assert.deepEqual(machine.leftovers(), [], `${machine.node}: the kernel after the last DEL`);
      const { memory } = machine.inspect();
      assert.deepEqual([memory.attachments, memory.unknown, memory.strays], [[], [], []], `${machine.node}: memory`);
    }
  }

  /** Everything goes back: blocks, requests, links, routes and memory. */
  async end(): Promise<void> {
    await this.#empty();
    assert.deepEqual(
      (await this.#scene.blocks()).map(({ metadata }) => metadata.name),
      [],
    );
    for (const machine of this.machines) assert.equal(machine.blocks.length, 0);
    assert.deepEqual(await this.#requests(), []);
    assert.equal(this.#pods.size, 0);
  }

  /** For the scene's end after a failure. */
  async abandon(): Promise<void> {
    for (const machine of this.machines) machine.kill();
    for (const pod of this.#pods.keys()) await this.#removePod(pod);
  }
}

/** Operations of the kernel of which one fails. */
const KERNEL_FAULTS = [
  "links.create",
  "links.set",
  "links.delete",
  "links.deleteMany",
  "addresses.add",
  "addresses.replace",
  "routes.add",
  "routes.replace",
  "routes.delete",
];

function whyOf(called: Called): { readonly ok: boolean; readonly why: string } {
  return { ok: called.ok, why: called.ok ? "" : called.why };
}

test("ipam: whatever happens to Nodes, machines, programs, pools and blocks, no address is on two pods, and all go back", {
  timeout: LONGEST_MS,
}, async (t: TestContext) => {
  t.diagnostic(`ISTHMUS_SEED=${SEED} ISTHMUS_STEPS=${STEPS}`);
  const weighted = Object.entries(OPS).map(([op, weight]) => ({ arbitrary: fc.constant(op as Op), weight }));
  const step = fc.record({
    op: fc.oneof(...weighted),
    node: fc.nat(NODES.length - 1),
    id: fc.nat(PODS - 1),
    at: fc.nat(40),
  });
  const total: Record<string, number> = {};
  const minLength = Math.min(STEPS, STEPS_OF_SCENE);
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength, maxLength: minLength, size: "max" }), async (steps) => {
      const scene = await world.scene(t, POOL, NODES);
      const model = new Model(scene);
      try {
        for (const one of steps) await model.run(one);
        await model.end();
      } finally {
        await model.abandon();
      }
      for (const [name, count] of Object.entries(model.counts)) total[name] = (total[name] ?? 0) + count;
    }),
    { numRuns: Math.ceil(STEPS / minLength), seed: SEED, endOnFailure: true },
  );
  t.diagnostic(JSON.stringify(total));
  for (const [name, count] of Object.entries(total)) assert.ok(count > 0 || STEPS < 700, `nothing was ${name}`);
});

test("ipam: a machine that lost its blocks while disconnected hands out none of their addresses, however soon an ADD comes", async (t) => {
  const scene = await world.scene(t, { blockSizeBits: 1, subnets: [{ ipv4: "10.9.0.0/28" }] }, NODES);
  const model = new Model(scene);
  const at = 0;
  const steps: readonly Step[] = [
    { op: "add", node: 0, id: 0, at },
    { op: "cut-off", node: 0, id: 0, at },
    { op: "give-up", node: 0, id: 0, at },
    { op: "add", node: 1, id: 0, at },
    { op: "add", node: 1, id: 1, at },
    { op: "register", node: 0, id: 0, at },
    { op: "heal", node: 0, id: 0, at },
    { op: "add", node: 0, id: 1, at },
  ];
  for (const step of steps) await model.run(step);
  const [first, second] = model.machines.map((machine) => machine.held());
  assert.deepEqual(
    second?.map(({ addresses }) => addresses),
    [["10.9.0.0"], ["10.9.0.1"]],
  );
  assert.deepEqual(
    first?.map(({ addresses, isCut }) => [addresses, isCut]),
    [
      [["10.9.0.0"], true],
      [["10.9.0.2"], false],
    ],
  );
  await model.end();
});
