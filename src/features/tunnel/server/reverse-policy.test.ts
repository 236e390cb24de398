import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { createLogger, nullLogger } from "#base/log";
import { SystemNames } from "#base/names";
import { Counts } from "../testing/bed.ts";
import { parseAllowedDestination } from "./allowed-destination.ts";
import { ReversePolicy } from "./reverse-policy.ts";

const ADDRESS = "127.0.0.1:1";
const mux = undefined as never;

function policy(maxConnections: number, address = ADDRESS) {
  const deps = {
    names: new SystemNames({ clock: systemClock }),
    clock: new FakeClock(),
    log: nullLogger,
    metrics: new Counts().server(),
  };
  const limits = { maxConnections, dialRate: 1000, dialTimeoutMs: 5000 };
  const one = new ReversePolicy(deps, { destinations: [parseAllowedDestination(address)], limits });
  const session = (agentID: string, commonName?: string, identity?: string) => {
    const peer = { address: "192.0.2.1:1", serverName: undefined, commonName };
    const made = one.session({ agentID, peer, identity });
    return { ...made, decide: () => made.decide({ type: "DIAL_REQ", protocol: "tcp", address, random: 1 }, mux) };
  };
  return { session };
}

test("ReversePolicy: the decision takes a place, not the connection", () => {
  const session = policy(2).session("a");
  assert.deepEqual(
    Array.from({ length: 4 }, () => session.decide().kind),
    ["connect", "connect", "refuse", "refuse"],
  );
});

test("ReversePolicy: a dial that is cancelled or fails frees its place", async () => {
  const session = policy(1).session("a");
  for (const signal of [AbortSignal.abort(), new AbortController().signal]) {
    const decision = session.decide();
    assert.ok(decision.kind === "connect");
    assert.equal(session.decide().kind, "refuse");
    await assert.rejects(decision.connect({ signal }));
  }
  assert.equal(session.decide().kind, "connect");
});

test("ReversePolicy: an unused connection frees its place when it is destroyed", async (t) => {
  const server = createServer((socket) => socket.on("error", () => undefined).resume());
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = policy(1, `127.0.0.1:${(server.address() as AddressInfo).port}`).session("a");
  const decision = session.decide();
  assert.ok(decision.kind === "connect");
  const end = await decision.connect({ signal: new AbortController().signal });
  assert.equal(session.decide().kind, "refuse");
  end.destroy("reset");
  for (const deadline = performance.now() + 5000; session.decide().kind !== "connect"; ) {
    assert.ok(performance.now() < deadline, "the place is not given back");
    await new Promise((resolve) => setImmediate(resolve));
  }
});

test("ReversePolicy: an agent with a certificate has the same limits under any id; an id cannot pose as a name", () => {
  const { session } = policy(1);
  assert.equal(session("a", "node1").decide().kind, "connect");
  assert.equal(session("b", "node1").decide().kind, "refuse");
  assert.equal(session("b", "node2").decide().kind, "connect");
  assert.equal(session("node1").decide().kind, "connect");
  assert.equal(session("node1").decide().kind, "refuse");
});

test("ReversePolicy: an address as long as a message is refused, and what is logged and answered is short", () => {
  const lines: string[] = [];
  const deps = {
    names: new SystemNames({ clock: systemClock }),
    clock: new FakeClock(),
    log: createLogger({ name: "server", write: (line) => void lines.push(line) }),
    metrics: new Counts().server(),
  };
  const limits = { maxConnections: 1, dialRate: 1000, dialTimeoutMs: 5000 };
  const policy = new ReversePolicy(deps, { destinations: [parseAllowedDestination(ADDRESS)], limits });
  const peer = { address: "192.0.2.1:1", serverName: undefined, commonName: undefined };
  const session = policy.session({ agentID: "evil", peer });
  for (const isStopped of [false, true]) {
    if (isStopped) policy.stop();
    const address = `${"x".repeat(4 * 1024 * 1024 - 100)}:1`;
    const decision = session.decide({ type: "DIAL_REQ", protocol: "tcp", address, random: 1 }, mux);
    assert.ok(decision.kind === "refuse" && decision.error === "the address is too long");
  }
  // An address that just fits is in the log, and in the answer.
  const fits = `${"y".repeat(510)}:1`;
  const decision = session.decide({ type: "DIAL_REQ", protocol: "tcp", address: fits, random: 2 }, mux);
  assert.ok(decision.kind === "refuse" && decision.error.includes(fits));
  assert.equal(lines.length, 3);
  for (const line of lines.slice(0, 2)) assert.ok(line.length < 1024, `${line.length} characters are logged`);
  assert.match(lines[0] ?? "", /x{100}\W.*too long/);
});

test("ReversePolicy: with rules an identity has one limit, whatever its agents' ids and certificates' names", () => {
  const { session } = policy(2);
  const all = [session("a", undefined, "node/n1"), session("b", "cn", "node/n1"), session("c", "cn", "node/n1")];
  assert.deepEqual(
    all.map(({ decide }) => decide().kind),
    ["connect", "connect", "refuse"],
  );
  assert.equal(session("a", "cn", "node/n2").decide().kind, "connect");
  assert.equal(session("a", "cn").decide().kind, "connect");
});
