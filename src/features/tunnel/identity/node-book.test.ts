import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Deferred } from "#base/async";
import { FakeClock } from "#base/clock";
import { Cidr } from "#base/ip";
import { type Logger, nullLogger } from "#base/log";
import type { ListPage, Node, WatchEvent } from "#kube/client";
import type { InformerApi } from "#kube/informer";
import { parseIdentifiers } from "#wire/konnectivity";
import { RuleGate } from "./agent-gate.ts";
import { nodeAddresses } from "./node-addresses.ts";
import { BATCH_MS, NodeBook } from "./node-book.ts";
import { readAgentRules } from "./rule-file.ts";

const BALANCER = "10.1.0.200";
let version = 0;

function nodeOf(name: string, ...addresses: string[]): Node {
  version += 1;
  const status = { addresses: addresses.map((address) => ({ type: "InternalIP", address })) };
  return { metadata: { name, uid: name, resourceVersion: String(version) }, status } as unknown as Node;
}

test("nodeAddresses: InternalIP and ExternalIP, in one form, that are of no pod, no Service and no machine's own", () => {
  const excluded = [Cidr.parse("10.2.0.0/16"), Cidr.parse("fd00:2::/64")];
  const of = (...addresses: { type?: string; address?: string }[]) => [...nodeAddresses({ addresses }, excluded)];
  assert.deepEqual(
    of(
      { type: "InternalIP", address: "10.1.0.1" },
      { type: "ExternalIP", address: "2001:DB8::1" },
      { type: "InternalIP", address: "::ffff:10.1.0.2" },
      { type: "Hostname", address: "10.1.0.3" },
      { type: "InternalDNS", address: "x" },
      { type: "InternalIP", address: "name" },
      { type: "InternalIP" },
      ...[
        "10.2.3.4",
        "::ffff:10.2.3.4",
        "fd00:2::1",
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "fe80::1",
      ].map((address) => ({ type: "InternalIP", address })),
    ),
    ["10.1.0.1", "2001:db8::1", "10.1.0.2"],
  );
  const many = Array.from({ length: 100 }, (_, at) => ({ type: "InternalIP", address: `10.1.1.${at}` }));
  assert.equal(of(...many).length, 64);
  assert.deepEqual([...nodeAddresses(undefined, [])], []);
});

/** A gate with the rule node-addresses and Nodes that the test lists and changes. */
function bookOf(t: TestContext, ...listed: readonly Node[]) {
  const clock = new FakeClock();
  const warnings: Readonly<Record<string, unknown>>[] = [];
  const log: Logger = { ...nullLogger, warn: (message, fields) => warnings.push({ message, ...fields }) };
  const mayList = new Deferred();
  const events: WatchEvent<Node>[] = [];
  let wake = new Deferred();
  const stop = new AbortController();
  stop.signal.addEventListener("abort", () => wake.resolve());
  const api = {
    async *listPages(): AsyncGenerator<ListPage<Node>> {
      await mayList.promise;
      yield { items: [...listed], resourceVersion: String(version) } as unknown as ListPage<Node>;
    },
    async *watch(): AsyncGenerator<WatchEvent<Node>> {
      while (!stop.signal.aborted) {
        yield* events.splice(0);
        await wake.promise;
        wake = new Deferred();
      }
    },
  } as unknown as InformerApi;
  const isBalancer = (address: string): boolean => address === BALANCER;
  const book = new NodeBook({ clock, log, isBalancer, onChange: (addresses) => gate.addressesChanged(addresses) }, [
    Cidr.parse("10.2.0.0/16"),
  ]);
  const gate = new RuleGate(readAgentRules(["node-addresses"]), { agents: 0, streams: 0 }, book);
  const running = book.run({ api, onHealth: () => undefined }, { signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    await clock.advance(BATCH_MS);
  };
  return {
    gate,
    warnings,
    list: async () => {
      mayList.resolve();
      await settle();
    },
    change: async (...changes: WatchEvent<Node>[]) => {
      events.push(...changes);
      wake.resolve();
      await settle();
    },
  };
}

/** An agent of a kubelet's certificate that claims addresses; returns the hosts that it has, now and later. */
function agentOf(gate: RuleGate, name: string, claims: readonly string[], from?: string): { hosts: () => string[] } {
  const identifiers = parseIdentifiers(claims.map((address) => `ipv4=${address}`).join("&"), { unknownKeys: "refuse" });
  const certificate = { commonNames: [`system:node:${name}`], organizations: ["system:nodes"], dnsNames: [], uris: [] };
  const admission = gate.admit(
    { certificate, token: undefined },
    { agentID: name, identifiers, from: from === undefined ? undefined : Cidr.parse(`${from}/32`).first },
  );
  assert.ok(admission.kind === "admitted");
  let { hosts } = admission;
  admission.observe({
    onRevoked: ({ message }) => assert.fail(message),
    onGranted: (granted) => {
      hosts = granted.hosts;
    },
  });
  return { hosts: () => [...hosts] };
}

const modified = (object: Node): WatchEvent<Node> => ({ type: "MODIFIED", object }) as WatchEvent<Node>;
const added = (object: Node): WatchEvent<Node> => ({ type: "ADDED", object }) as WatchEvent<Node>;
const deleted = (object: Node): WatchEvent<Node> => ({ type: "DELETED", object }) as WatchEvent<Node>;

test("NodeBook: an agent has the addresses of its Node once they are known, and no others", async (t) => {
  const { gate, list, change } = bookOf(t, nodeOf("n1", "10.1.0.1"), nodeOf("n2", "10.1.0.2"));
  const one = agentOf(gate, "n1", ["10.1.0.1", "10.1.0.2", "10.9.9.9", "10.2.0.1"]);
  assert.deepEqual(one.hosts(), [], "nobody has an address before Nodes are read");
  await list();
  assert.deepEqual(one.hosts(), ["10.1.0.1"]);
  assert.deepEqual(agentOf(gate, "n2", ["10.1.0.1", "10.1.0.2"]).hosts(), ["10.1.0.2"]);
  await change(modified(nodeOf("n1", "10.1.0.1", "10.9.9.9", "10.2.0.1")));
  assert.deepEqual(one.hosts(), ["10.1.0.1", "10.9.9.9"]);
  await change(deleted(nodeOf("n1", "10.1.0.1")));
  assert.deepEqual(one.hosts(), []);
});

test("NodeBook: a kubelet that writes another Node's address into its own gets nothing by it, and the log names both", async (t) => {
  const { gate, list, change, warnings } = bookOf(t, nodeOf("good", "10.1.0.1"), nodeOf("evil", "10.1.0.2"));
  await list();
  const good = agentOf(gate, "good", ["10.1.0.1"]);
  const evil = agentOf(gate, "evil", ["10.1.0.1", "10.1.0.2"], "10.1.0.2");
  await change(modified(nodeOf("evil", "10.1.0.1", "10.1.0.2")));
  assert.deepEqual([good.hosts(), evil.hosts()], [["10.1.0.1"], ["10.1.0.2"]]);
  const [warning] = warnings.splice(0);
  assert.deepEqual(
    [warning?.["message"], warning?.["address"], warning?.["nodes"], warning?.["owner"]],
    ["an address is in several Nodes", "10.1.0.1", "evil,good", "good"],
  );
  await change(deleted(nodeOf("good", "10.1.0.1")));
  assert.deepEqual(evil.hosts().toSorted(), ["10.1.0.1", "10.1.0.2"]);
  const [moved] = warnings;
  assert.deepEqual(
    [moved?.["message"], moved?.["before"], moved?.["owner"]],
    ["an address belongs to another Node than before", "good", "evil"],
  );
});

test("NodeBook: after a start an address in two Nodes is that one's whose agent connects from it, and nobody's before", async (t) => {
  const { gate, list, change } = bookOf(t, nodeOf("evil", "10.1.0.1", "10.1.0.2"), nodeOf("good", "10.1.0.1"));
  await list();
  const evil = agentOf(gate, "evil", ["10.1.0.1", "10.1.0.2"], "10.1.0.2");
  assert.deepEqual(evil.hosts(), ["10.1.0.2"]);
  const early = agentOf(gate, "good", ["10.1.0.1"], "10.1.0.77");
  assert.deepEqual(early.hosts(), []);
  const good = agentOf(gate, "good", ["10.1.0.1"], "10.1.0.1");
  assert.deepEqual([good.hosts(), early.hosts(), evil.hosts()], [["10.1.0.1"], ["10.1.0.1"], ["10.1.0.2"]]);
  await change(added(nodeOf("late", "10.1.0.1")));
  assert.deepEqual(agentOf(gate, "late", ["10.1.0.1"], "10.1.0.1").hosts(), []);
});

test("NodeBook: a connection from a balancer decides nothing, also where the balancer is a Node", async (t) => {
  const { gate, list } = bookOf(t, nodeOf("balancer", BALANCER), nodeOf("evil", BALANCER));
  await list();
  assert.deepEqual(agentOf(gate, "evil", [BALANCER], BALANCER).hosts(), []);
});
