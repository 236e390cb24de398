import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import type { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { CniFailure } from "#features/cni";
import type { Node } from "#kube/client";
import type { EventInput } from "#kube/events";
import { OwnNode } from "./own-node.ts";

const OURS = "11111111-1111-4111-8111-111111111111";
const THEIRS = "22222222-2222-4222-8222-222222222222";
const HOST = { bootId: OURS, machineId: "a".repeat(32) };
const HERE = "192.0.2.1";
const THERE = "192.0.2.2";

/** A version of the Node, as the kubelet of one machine writes it. */
function node(bootID: string, address: string | undefined, version: number): Node {
  const addresses = address === undefined ? [] : [{ type: "InternalIP", address }];
  return {
    metadata: { name: "n1", uid: "u", resourceVersion: String(version) },
    status: { addresses, nodeInfo: { bootID, machineID: bootID === OURS ? HOST.machineId : "b".repeat(32) } },
  } as unknown as Node;
}

class Rig implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly health = new Health({ clock: this.clock });
  readonly events: EventInput[] = [];
  readonly gateways: string[] = [];
  isTwin = false;
  /** Counts how often blocks may be returned again. */
  settled = 0;
  readonly own: OwnNode;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor() {
    this.own = new OwnNode(
      {
        host: HOST,
        network: {
          hasHostAddress: (address: IpAddress) => String(address) === HERE,
          setNodeAddresses: ({ ipv4 }) => void this.gateways.push(String(ipv4)),
        },
        events: { record: (event) => void this.events.push(event) },
        health: this.health.part("node", { needed: "always" }),
        onTwin: (isTwin) => {
          this.isTwin = isTwin;
        },
        onSettled: () => {
          this.settled += 1;
        },
        log: nullLogger,
        clock: this.clock,
      },
      { nodeName: "n1", comparesAddresses: true },
    );
    this.#running = this.own.run({ signal: this.#stop.signal });
  }

  /** The reason why coild is not ready; empty if it is. */
  get unready(): string {
    return this.health.unready.map(({ reason }) => reason).join();
  }

  /** The outcome of an ADD that has waited until now: `goes on`, `waits`, or its failure. */
  async add(): Promise<string> {
    const deadline = new AbortController();
    let outcome = "waits";
    const waiting = this.own.untilOurs({ signal: deadline.signal }).then(
      () => {
        outcome = "goes on";
      },
      (error: unknown) => {
        assert.ok(error instanceof CniFailure);
        outcome = `${error.detail.code} ${error.message}`;
      },
    );
    await this.clock.advance(0);
    if (outcome !== "waits") return outcome;
    deadline.abort();
    await waiting;
    return `waits: ${outcome}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }
}

test("coild: two machines that write one Node in turn: not ready, ADD fails with code 11 and both machine ids, one Event; two quiet minutes end it", async () => {
  await using rig = new Rig();
  rig.own.see(node(OURS, HERE, 1));
  assert.deepEqual([await rig.add(), rig.unready, rig.isTwin], ["goes on", "", false]);
  rig.own.see(node(THEIRS, THERE, 2));
  assert.match(await rig.add(), /^waits: 11 another machine may have the node name n1/);
  assert.equal(rig.unready, "", "a moment of doubt does not make it unready");
  await rig.clock.advance(10_000);
  rig.own.see(node(OURS, HERE, 3));
  const refusal = await rig.add();
  for (const part of ["11 another machine has", HOST.machineId, "b".repeat(32), OURS, THEIRS, THERE])
    assert.ok(refusal.includes(part), refusal);
  assert.match(rig.unready, /another machine has the node name n1 too/);
  assert.equal(rig.isTwin, true);
  for (let turn = 0; turn < 6; turn += 1) {
    await rig.clock.advance(10_000);
    rig.own.see(turn % 2 === 0 ? node(THEIRS, THERE, 4 + turn) : node(OURS, HERE, 4 + turn));
  }
  assert.deepEqual(
    rig.events.map(({ regarding, reason }) => [regarding.kind, regarding.name, reason]),
    [["Node", "n1", "NodeNameTwin"]],
  );
  await rig.clock.advance(119_000);
  assert.match(await rig.add(), /^11 /);
  await rig.clock.advance(2000);
  assert.deepEqual([await rig.add(), rig.unready, rig.isTwin], ["goes on", "", false]);
  assert.deepEqual(
    rig.events.map(({ type, reason }) => [type, reason]),
    [
      ["Warning", "NodeNameTwin"],
      ["Normal", "NodeNameUnique"],
    ],
  );
});

test("coild: another machine's status that stays is a twin after 30 s, without an event of the API", async () => {
  await using rig = new Rig();
  rig.own.see(node(OURS, HERE, 1));
  rig.own.see(node(THEIRS, THERE, 2));
  await rig.clock.advance(30_000);
  assert.match(await rig.add(), /^waits/);
  await rig.clock.advance(2000);
  assert.match(await rig.add(), /^11 another machine has/);
});

test("coild: the addresses of another machine's status become no gateways of pods", async () => {
  await using rig = new Rig();
  rig.own.see(node(THEIRS, THERE, 1));
  rig.own.see(node(OURS, HERE, 2));
  rig.own.see(node(THEIRS, THERE, 3));
  rig.own.see(node(OURS, undefined, 4));
  await rig.clock.advance(60_000);
  assert.deepEqual([...new Set(rig.gateways)], [HERE]);
});

test("coild: an older version of the Node, from an API server that lags behind, changes nothing", async () => {
  await using rig = new Rig();
  rig.own.see(node(OURS, HERE, 7));
  rig.own.see(node(THEIRS, THERE, 3));
  await rig.clock.advance(60_000);
  assert.deepEqual([await rig.add(), rig.unready, rig.own.isSettled], ["goes on", "", true]);
  assert.deepEqual([...new Set(rig.gateways)], [HERE]);
});

test("coild: ADDs that wait for the Node's first InternalIP go on when it is there, and their failure says what they waited for", async () => {
  await using rig = new Rig();
  assert.match(await rig.add(), /^waits: 11 this Node is not in the API yet/);
  rig.own.see(node(OURS, undefined, 1));
  assert.match(await rig.add(), /^waits: 11 this Node has no InternalIP yet/);
  assert.match(rig.unready, /no InternalIP yet/);
  let isDone = false;
  const waiting = rig.own.untilOurs({}).then(() => {
    isDone = true;
  });
  await rig.clock.advance(300_000);
  assert.equal(isDone, false);
  rig.own.see(node(OURS, HERE, 2));
  await waiting;
  assert.deepEqual([rig.unready, rig.events], ["", []]);
});

test("coild: a Node of a cloud without private networks has an ExternalIP of its host and no InternalIP: ADDs go on; another ExternalIP alone is waited with", async () => {
  const external = (address: string, version: number): Node => {
    const { metadata, status } = node(OURS, undefined, version);
    return { metadata, status: { ...status, addresses: [{ type: "ExternalIP", address }] } } as unknown as Node;
  };
  await using rig = new Rig();
  rig.own.see(external(THERE, 1));
  assert.match(
    await rig.add(),
    /^waits: 11 this Node has no InternalIP yet, and no ExternalIP of this host.*--node-addresses=any/,
  );
  rig.own.see(external(HERE, 2));
  assert.deepEqual([await rig.add(), rig.unready], ["goes on", ""]);
  assert.deepEqual(rig.gateways, ["undefined"], "the network is told, so that it makes lost links again");
  await rig.clock.advance(31_000);
  assert.equal(rig.own.isSettled, true);
  rig.own.see({ ...external(HERE, 3), ...node(OURS, THERE, 3) });
  assert.match(await rig.add(), /^waits: 11 another machine may have/, "an InternalIP counts alone");
});

test("coild: empty blocks are returned when the Node was its own for 30 s, and not within two minutes of another machine's status", async () => {
  await using rig = new Rig();
  rig.own.see(node(OURS, HERE, 1));
  await rig.clock.advance(29_000);
  assert.deepEqual([rig.own.isSettled, rig.settled], [false, 0]);
  await rig.clock.advance(2000);
  assert.deepEqual([rig.own.isSettled, rig.settled], [true, 1]);
  rig.own.see(undefined);
  assert.equal(rig.own.isSettled, true, "a Node that is deleted shows no other machine");
  rig.own.see(node(THEIRS, THERE, 2));
  assert.equal(rig.own.isSettled, false);
  rig.own.see(node(OURS, HERE, 3));
  await rig.clock.advance(149_000);
  assert.deepEqual([rig.own.isSettled, rig.settled], [false, 1]);
  await rig.clock.advance(3000);
  assert.deepEqual([rig.own.isSettled, rig.settled], [true, 2]);
  await using bare = new Rig();
  bare.own.see(node("", HERE, 1));
  assert.deepEqual([bare.own.isSettled, bare.settled], [true, 1], "no kubelet of another machine would be seen later");
});
