/**
 * A model of a cluster's addresses (docs/spec/pod-network.md#3, #4 and #20): machines with pods, the controller, and everything that happens to
 * them. The API server is real; time and the kernels are the model's.
 *
 * Owns: what a step does, and what holds after it. Does not know: which steps come; `ipam-steps` has them, and a test drives them.
 *
 * ```ts
 * const model = new Model(await openPlace(world, t, options));
 * for (const step of steps) await model.run(step);
 * await model.end();
 * ```
 */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { type AddressBlock, type AddressPoolSpec, coilResources, NODE_LABEL } from "#kube/coil";
import { assertAudited, assertEmpty, assertSound } from "#test/ipam-checks";
import { ModelController } from "#test/ipam-controller";
import { type Called, Machine } from "#test/ipam-machine";
import type { ModelPlace } from "#test/ipam-place";
import { ModelPool, POOL } from "#test/ipam-pool";
import { ModelRegistry } from "#test/ipam-registry";
import { FAULTS, KERNEL_FAULTS, type Op, type Step, WITHOUT_COILD } from "#test/ipam-steps";
import type { IpamWorld } from "#test/ipam-world";

const GRACE_MS = 60_000;
export const MACHINES = ["a", "b", "c"];
export const PODS = 6;

/** A place with the pool {@link POOL}, or another one; it goes with the test. */
export async function openPlace(
  world: IpamWorld,
  t: TestContext,
  options: { readonly signal: AbortSignal },
  pool: AddressPoolSpec = POOL,
): Promise<ModelPlace> {
  return { client: world.client, known: () => world.known(), scene: await world.scene(t, pool, MACHINES), options };
}

export class Model {
  readonly machines: readonly Machine[];
  readonly #place: ModelPlace;
  readonly #clock = new FakeClock();
  readonly #controller: ModelController;
  readonly #registry: ModelRegistry;
  readonly #pool: ModelPool;
  #step = 0;
  /** The pool is deleted; every pod goes at this step. */
  #drainAt: number | undefined;
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

  constructor(place: ModelPlace) {
    this.#place = place;
    const { client, scene, options } = place;
    const onWritten = async (_method: unknown, args: readonly unknown[], answer: unknown): Promise<void> =>
      this.#noteWrite(args[0], answer);
    this.#controller = new ModelController(place, { clock: this.#clock, graceMs: GRACE_MS, onWritten });
    const nodes = MACHINES.map((name) => scene.nodeOf(name));
    this.#registry = new ModelRegistry(place, nodes, (node) => {
      this.#noteChange((machine) => machine.node === node);
      this.#controller.noteNode(node);
    });
    this.#pool = new ModelPool(place, () => this.#noteChange());
    const deps = {
      api: client,
      clock: this.#clock,
      pool: scene.pool,
      signal: options.signal,
      onWritten: async (method: keyof KubeApi, args: readonly unknown[], answer: unknown): Promise<void> => {
        this.#noteWrite(args[0], answer);
        if (method !== "create" || args[0] !== coilResources.blockRequests || this.#controller.isAway) return;
        await this.#controller.answer((answer as { readonly metadata: { readonly name: string } }).metadata.name);
      },
      createPod: (name: string, node: string): Promise<void> => this.#registry.createPod(name, node),
      removePod: (name: string): Promise<void> => this.#registry.removePod(name),
      nodeExists: (node: string): boolean => this.#registry.nodes.has(node),
    };
    this.machines = nodes.map((node, at) => new Machine(node, at, deps));
  }

  /** A program has written a block: the watch of its node says so. A deletion is answered without the object. */
  #noteWrite(type: unknown, answer: unknown): void {
    if (type !== coilResources.addressBlocks) return;
    const node = (answer as Partial<AddressBlock>).metadata?.labels?.[NODE_LABEL];
    this.#noteChange(({ node: one }) => node === undefined || one === node);
  }

  /** Something was written that these machines watch. */
  #noteChange(watches: (machine: Machine) => boolean = () => true): void {
    for (const machine of this.machines) if (watches(machine)) machine.isBehind = true;
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
    assertSound(this.machines, step.op, false);
    await this.goOn();
    if (FAULTS.has(step.op)) await this.#recover();
    assertSound(this.machines, `after ${step.op}`, true);
    if (this.#step % 10 === 0) await this.#audit(step.op);
  }

  /** Every program makes its next pass. */
  async goOn(): Promise<void> {
    const before = this.#cutOff();
    for (const machine of this.machines) {
      if (machine.isUp) await machine.delLeaving();
      await machine.goOn();
    }
    await this.#controller.goOn({ isPoolDeleted: this.#drainAt !== undefined });
    const now = this.#cutOff();
    this.counts.cut += [...now].filter((one) => !before.has(one)).length;
    this.counts.joined += [...before].filter((one) => !now.has(one)).length;
  }

  async #recover(): Promise<void> {
    for (const one of this.machines) {
      one.calm();
      if (one.isUp) continue;
      this.counts.killed += 1;
      await one.start();
    }
    await this.#controller.recover();
    await this.goOn();
  }

  async #audit(op: Op): Promise<void> {
    this.counts.audited += await assertAudited(this.#place, this.machines, this.#registry.nodes, `after ${op}`);
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
        // Somebody may have taken the link away: then there is nothing that could fail.
        if (any === undefined || !machine.isReady || !machine.hasLink(any)) return;
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
        return this.#registry.deleteNode(machine.node);
      case "register":
        return this.#registry.register(machine.node);
      case "collect-pods":
        return this.#registry.collectPods();
      case "register-in-pass":
        return this.#registerInPass(machine);
      case "give-up":
        return this.#giveUp(machine);
      case "wait":
        return this.#wait();
      case "new-leader":
        return this.#controller.elect();
      case "controller-fault":
        this.#controller.failAfter(at % 8, how);
        return this.#add(machine, id, { isExcused: true });
      case "controller-away":
        this.#controller.leave();
        if (!machine.isAway && sandbox === undefined) await machine.add(id, { isImpatient: true });
        return;
      case "append-subnet":
        if (!(await this.#pool.append())) return;
        this.#controller.notePoolChange();
        this.counts.grown += 1;
        return;
      case "forbidden-edit":
        return this.#pool.forbiddenEdit(at);
      case "reserve":
        this.counts.reserved += await this.#pool.label(at, "true");
        return;
      case "unreserve":
        this.counts.reserved += await this.#pool.label(at, null);
        return;
      case "delete-block":
        return this.#pool.deleteBlock(at);
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
    if (mayFail || !this.#registry.nodes.has(machine.node)) return;
    assert.match(called.why, /no free block|does not have free blocks|does not exist|is being deleted/, machine.node);
    if (this.#pool.isDeleted) return;
    const blocks = await this.#place.scene.blocks();
    assert.equal(blocks.length, this.#pool.capacity, `an ADD failed although blocks are free: ${called.why}`);
  }

  async #del(machine: Machine, id: number): Promise<void> {
    if (!machine.sandboxes.has(id)) return;
    const called = await machine.del(id);
    assert.ok(called.ok || !machine.isUp, `DEL of ${id} on ${machine.node}: ${whyOf(called).why}`);
  }

  /** A Node registers again while the controller's pass is under way. */
  async #registerInPass({ node }: Machine): Promise<void> {
    const { client } = this.#place;
    client.onNodesListed = async () => {
      client.onNodesListed = async () => undefined;
      await this.#registry.register(node);
    };
    await this.#wait();
    client.onNodesListed = async () => undefined;
  }

  /** The Node is deleted, its Pod objects are too, and more than the grace passes; its machine goes on. */
  async #giveUp({ node }: Machine): Promise<void> {
    await this.#registry.deleteNode(node);
    await this.#registry.collectPods();
    this.#noteForsaken();
    for (let third = 0; third < 4; third += 1) await this.#wait();
  }

  /** A third of the grace passes, with a pass of the controller at its end. */
  async #wait(): Promise<void> {
    await this.#clock.advance(GRACE_MS / 3);
    this.counts.collected += await this.#controller.collect();
    this.#noteForsaken();
  }

  #noteForsaken(): void {
    const now = this.#clock.monotonic();
    for (const machine of this.machines) {
      const { node } = machine;
      if (this.#registry.nodes.has(node) || this.#registry.hasPodsOn(node)) machine.forsakenSinceMs = undefined;
      else machine.forsakenSinceMs ??= now;
      const isForsaken = machine.forsakenSinceMs !== undefined && now - machine.forsakenSinceMs >= GRACE_MS;
      if (isForsaken) for (const { sandbox } of machine.held()) sandbox.mayBeTwice = true;
    }
  }

  /** Pods of the block are cut off, and the block is carved again. */
  async #forceBlock(at: number): Promise<void> {
    await this.#pool.forceBlock(at, (prefix) => {
      for (const { sandbox, addresses } of this.machines.flatMap((machine) => machine.held())) {
        if (addresses.some((one) => !one.includes(":") && prefix.contains(IpAddress.parse(one))))
          sandbox.mayBeTwice = true;
      }
    });
  }

  async #deletePool(): Promise<void> {
    if (this.#drainAt !== undefined) return;
    await this.#pool.delete();
    this.#drainAt = this.#step + 10;
    this.#controller.notePoolChange();
  }

  /** The pool is deleted: with its last pod it goes, and can be made anew with other subnets. */
  async #drain(): Promise<void> {
    if (this.#drainAt === undefined) return;
    await this.#empty();
    await this.#pool.remake();
    this.#drainAt = undefined;
    this.#controller.notePoolChange();
    this.counts.drained += 1;
  }

  #cutOff(): Set<string> {
    const all = this.machines.flatMap((machine) => machine.held());
    return new Set(all.filter(({ isCut }) => isCut).map(({ sandbox }) => sandbox.containerId));
  }

  /** Every machine is back, every pod is deleted, and the runtimes have collected what they lost. */
  async #empty(): Promise<void> {
    for (const machine of this.machines) {
      machine.calm();
      machine.path.isCut = false;
      await this.#registry.register(machine.node);
      if (!machine.isUp) await machine.start();
    }
    await this.#controller.recover();
    this.counts.reserved += await this.#pool.label(0, null);
    await this.goOn();
    assertSound(this.machines, "after all came back", true);
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
    for (const machine of this.machines) assertEmpty(machine);
  }

  /** Everything goes back: blocks, requests, links, routes and memory. */
  async end(): Promise<void> {
    await this.#empty();
    await this.#pool.assertNoBlocks();
    for (const machine of this.machines) assert.equal(machine.blocks.length, 0);
    assert.deepEqual(await this.#controller.requests(), []);
    assert.equal(this.#registry.size, 0);
  }

  /** For the scene's end after a failure. */
  async abandon(): Promise<void> {
    for (const machine of this.machines) machine.kill();
    await this.#registry.removeAllPods();
  }
}

function whyOf(called: Called): { readonly ok: boolean; readonly why: string } {
  return { ok: called.ok, why: called.ok ? "" : called.why };
}
