import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { FakeConntrack } from "#kernel/conntrack";
import { flow, gateway, ip, KEY, PORT, RouterProbeBed, router, SERVICE } from "#test/router-probe-bed";
import { encodeProbe, probePort } from "../probe/index.ts";
import { vxlanDriver } from "../tunnel/index.ts";
import { ClientRouters } from "./client-routers.ts";

test("a router that stops answering is left within 2 s, flows to it are deleted and others stay, and it is used again when it answers", async () => {
  using bed = new RouterProbeBed([flow("10.64.0.7", "10.64.0.8"), flow("10.64.0.6", "10.64.2.8")]);
  bed.use("one", "10.64.0.7");
  bed.use("two", "10.64.0.6");
  await bed.clock.advance(5500);
  assert.deepEqual([bed.remote("one"), bed.remote("two"), bed.changes], [String(SERVICE), String(SERVICE), []]);
  bed.down.add("10.64.0.8");
  await bed.clock.advance(1800);
  assert.deepEqual(bed.changes, [KEY]);
  assert.ok(["10.64.1.8", "10.64.2.8"].includes(bed.remote("one")));
  // Its flows are there.
  assert.equal(bed.remote("two"), "10.64.2.8");
  assert.equal(bed.routersOfClients.redirects.length, 2);
  assert.match(bed.health, /routers that answer no probes: a of Egress internet\/nat;/);
  await bed.clock.advance(600);
  assert.deepEqual(
    bed.conntrack.list({ family: 4 }).map(({ reply }) => String(reply.src)),
    ["10.64.2.8"],
  );
  bed.down.clear();
  await bed.clock.advance(9000);
  assert.deepEqual(bed.changes, [KEY]);
  assert.notEqual(bed.remote("one"), String(SERVICE));
  await bed.clock.advance(4000);
  assert.deepEqual(bed.changes, [KEY, KEY]);
  assert.deepEqual([bed.remote("one"), bed.remote("two")], [String(SERVICE), String(SERVICE)]);
  assert.deepEqual([bed.routersOfClients.redirects, bed.health], [[], "ok"]);
  await bed.stop();
  assert.equal(bed.open, 0);
});

test("a router that has never answered is not judged, and where all are dead the Service's address stays", async () => {
  using bed = new RouterProbeBed();
  bed.down.add("10.64.0.8");
  bed.use("one", "10.64.0.7");
  await bed.clock.advance(10_000);
  assert.deepEqual(
    bed.routersOfClients.verdicts.map(({ verdict }) => verdict),
    ["unproven", "alive", "alive"],
  );
  assert.deepEqual([bed.changes, bed.remote("one")], [[], String(SERVICE)]);
  bed.down.add("10.64.1.8").add("10.64.2.8");
  bed.routers.shift();
  bed.routersOfClients.routersChanged();
  await bed.clock.advance(4000);
  assert.equal(bed.remote("one"), String(SERVICE));
  await bed.stop();
});

test("clients that a dead router has lost stay where they are when it is gone, as long as their router lives; new ones have the Service's address", async () => {
  using bed = new RouterProbeBed();
  bed.use("one", "10.64.0.7");
  await bed.clock.advance(3000);
  bed.down.add("10.64.0.8");
  await bed.clock.advance(3000);
  const kept = bed.remote("one");
  assert.notEqual(kept, String(SERVICE));
  bed.routers[0] = router("a", "10.64.0.8", false);
  bed.routersOfClients.routersChanged();
  await bed.clock.advance(10);
  bed.use("two", "10.64.0.6");
  assert.deepEqual([bed.remote("one"), bed.remote("two"), bed.changes.length], [kept, String(SERVICE), 2]);
  await bed.clock.advance(2000);
  assert.equal(bed.remote("one"), kept);
  bed.routers.forEach((one, at) => {
    if (one.addresses.some((address) => String(address) === kept)) bed.routers[at] = router("x", kept, false);
  });
  bed.routersOfClients.routersChanged();
  await bed.clock.advance(10);
  assert.equal(bed.remote("one"), String(SERVICE));
  await bed.stop();
});

test("a client whose socket has failed probes nothing for a minute, others do in its place; where none can, nobody is judged", async () => {
  using bed = new RouterProbeBed();
  bed.use("one", "10.64.0.7");
  bed.use("two", "10.64.0.6");
  await bed.clock.advance(3000);
  bed.failed.add("10.64.0.7");
  bed.sent.length = 0;
  await bed.clock.advance(20_000);
  assert.deepEqual([...new Set(bed.sent.map(({ from }) => from))], ["10.64.0.6"]);
  assert.deepEqual([bed.health, bed.open], ["ok", 1]);
  bed.failed.add("10.64.0.6");
  await bed.clock.advance(5000);
  assert.deepEqual([bed.health, bed.remote("one"), bed.open], ["ok", String(SERVICE), 0]);
  bed.failed.clear();
  await bed.clock.advance(62_000);
  assert.equal(bed.open, 1);
  await bed.stop();
});

test("the signal ends it also while connection tracking is read", async () => {
  using bed = new RouterProbeBed();
  bed.use("one", "10.64.0.7");
  await bed.clock.advance(3000);
  bed.down.add("10.64.0.8");
  bed.reading = Promise.withResolvers<void>();
  await bed.clock.advance(3000);
  assert.deepEqual(bed.changes, []);
  const stopped = bed.stop();
  bed.reading.resolve();
  await stopped;
  assert.equal(bed.open, 0);
});

test("5,000 clients on one node: one probe a second for each router, by one of them as long as it has answers, and a broken one condemns nobody", async () => {
  using bed = new RouterProbeBed();
  for (let at = 0; at < 5000; at += 1) bed.use(`pod-${at}`, `10.65.${at >> 8}.${at & 255}`);
  bed.broken.add("10.65.0.0");
  await bed.clock.advance(20_000);
  assert.ok(bed.sent.length <= 3 * 21, `${bed.sent.length} probes`);
  assert.deepEqual([...new Set(bed.sent.map(({ from }) => from))], ["10.65.0.1"]);
  assert.equal(bed.open, 1);
  assert.deepEqual(bed.changes, []);
  const before = bed.sent.length;
  bed.down.add("10.64.0.8");
  await bed.clock.advance(2000);
  assert.deepEqual(bed.changes, [KEY]);
  assert.ok(bed.sent.length - before <= 3 * 3 + 20, `${bed.sent.length - before} probes`);
  // All of them in turn look for the router.
  assert.ok(new Set(bed.sent.slice(before).map(({ from }) => from)).size >= 20);
  const remotes = new Set(Array.from({ length: 5000 }, (_, at) => bed.remote(`pod-${at}`)));
  assert.deepEqual([...remotes].sort(), ["10.64.1.8", "10.64.2.8"]);
  for (let at = 0; at < 5000; at += 1) bed.routersOfClients.forget(`pod-${at}`);
  await bed.clock.advance(1);
  assert.deepEqual([bed.open, bed.routersOfClients.redirects.length], [0, 0]);
  // A pod that is gone has a choice, and leaves nothing.
  bed.remote("pod-7");
  assert.deepEqual(bed.routersOfClients.redirects, []);
  const last = bed.sent.length;
  await bed.clock.advance(5000);
  assert.equal(bed.sent.length, last);
  await bed.stop();
});

test("answers with another token, of another port or of another address are none", async () => {
  const clock = new FakeClock();
  let forged: (() => void) | undefined;
  const one = router("a", "10.64.0.8");
  const clients = new ClientRouters(
    {
      routersOf: () => [one],
      openSocket: (_place, _address, onDatagram) => ({
        port: 40_000,
        isOpen: true,
        send: (bytes) => {
          const token = bytes.subarray(-16).toString("hex");
          const answer = encodeProbe({ kind: "answer", token });
          const right = { address: "10.64.0.8", port: probePort(PORT) };
          forged = () => {
            onDatagram(encodeProbe({ kind: "answer", token: "00".repeat(16) }), right);
            onDatagram(encodeProbe({ kind: "question", token }), right);
            onDatagram(answer, { ...right, port: 40_000 });
            onDatagram(answer, { ...right, address: "10.64.0.9" });
            onDatagram(answer.subarray(1), right);
          };
        },
        [Symbol.dispose]: () => undefined,
      }),
      openConntrack: () => new FakeConntrack(),
      onChange: () => undefined,
      health: { ok: () => undefined, degraded: (error) => assert.fail(String(error)) },
      log: nullLogger,
      clock,
    },
    { port: PORT },
  );
  const controller = new AbortController();
  const running = clients.run({ signal: controller.signal });
  const place = { path: "/run/netns/one", inode: 1n, ifname: "eth0", addresses: { 4: ip("10.64.0.7") } };
  clients.use("one", { namespace: "default", place, driver: vxlanDriver, gateways: [gateway()] });
  await clock.advance(1500);
  assert.ok(forged !== undefined, "a probe was sent");
  forged();
  assert.deepEqual(
    clients.verdicts.map(({ verdict }) => verdict),
    ["unproven"],
  );
  controller.abort();
  await clock.advance(1);
  await running;
});

test("pods of one namespace that get no answers move themselves alone; of three namespaces they move nobody", async () => {
  using bed = new RouterProbeBed([flow("10.64.0.7", "10.64.0.8"), flow("10.64.0.6", "10.64.0.8")]);
  for (let at = 0; at < 50; at += 1) bed.use(`bad-${at}`, `10.65.0.${at}`, { namespace: "bad" });
  bed.use("bad", "10.64.0.7", { namespace: "bad" });
  bed.use("good", "10.64.0.6", { namespace: "good" });
  await bed.clock.advance(5000);
  for (let at = 0; at < 50; at += 1) bed.deaf.add(`10.65.0.${at}`);
  bed.deaf.add("10.64.0.7");
  await bed.clock.advance(10_000);
  assert.deepEqual([bed.remote("good"), bed.remote("bad")], [String(SERVICE), String(SERVICE)]);
  // To them all routers are dead, so nothing better is known.
  assert.match(bed.health, /a of Egress internet\/nat for pods of bad, /);
  assert.deepEqual(
    bed.routersOfClients.verdicts.map(({ verdict }) => verdict),
    ["alive", "alive", "alive"],
  );
  // No flow of the others is deleted.
  assert.deepEqual(
    bed.conntrack.list({ family: 4 }).map(({ original }) => String(original.src)),
    ["10.64.0.6"],
  );
  bed.use("third", "10.64.0.5", { namespace: "third" });
  await bed.clock.advance(10_000);
  assert.deepEqual([bed.health, bed.remote("good"), bed.remote("bad")], ["ok", String(SERVICE), String(SERVICE)]);
  await bed.stop();
});

test("answers that a namespace forges keep a dead router for no other one: of two for it alone, of three for nobody", async () => {
  for (const others of [["good"], ["good", "third"]]) {
    using bed = new RouterProbeBed();
    bed.use("bad", "10.64.0.7", { namespace: "bad" });
    for (const [at, namespace] of others.entries()) bed.use(namespace, `10.64.0.${at}`, { namespace });
    await bed.clock.advance(5000);
    bed.forging.add("10.64.0.7");
    bed.down.add("10.64.0.8");
    await bed.clock.advance(3000);
    for (const one of others) assert.notEqual(bed.remote(one), String(SERVICE), one);
    assert.equal(bed.remote("bad") === String(SERVICE), others.length === 1);
    await bed.clock.advance(60_000);
    for (const one of others) assert.notEqual(bed.remote(one), String(SERVICE), one);
    await bed.stop();
  }
});

test("the token of a namespace's probes is not that of another one, and of one router not that of another", async () => {
  using bed = new RouterProbeBed();
  const tokens = new Map<string, Set<string>>();
  bed.onSent = (from, token) => tokens.set(token, (tokens.get(token) ?? new Set<string>()).add(from));
  bed.use("one", "10.64.0.7", { namespace: "one" });
  bed.use("two", "10.64.0.6", { namespace: "two" });
  await bed.clock.advance(10_000);
  assert.equal(tokens.size, 2 * 3);
  for (const from of tokens.values()) assert.equal(from.size, 1);
  await bed.stop();
});

test("50 Egresses whose routers are lost at once: connection tracking is read once for all, and once more to delete their flows; meanwhile probes go on", async () => {
  using bed = new RouterProbeBed();
  const egresses = Array.from({ length: 50 }, (_, at) => ({ namespace: "internet", name: `nat-${at}` }));
  bed.routers.splice(0, 3);
  const gateways = egresses.map((egress, at) => gateway(egress, ip(`10.68.1.${at}`)));
  egresses.forEach(({ name }, at) => {
    for (const side of ["lost", "kept"])
      bed.routers.push({
        ...router(`${side}-${at}`, `10.64.${side === "lost" ? 1 : 2}.${at}`),
        egress: `internet/${name}`,
      });
    bed.conntrack.entries.push({
      ...flow("10.64.0.7", `10.64.1.${at}`),
      original: { src: ip("10.64.0.7"), dst: ip(`10.68.1.${at}`), srcPort: 30_000 + at, dstPort: PORT },
    });
  });
  bed.use("one", "10.64.0.7", { gateways });
  await bed.clock.advance(5000);
  for (let at = 0; at < 50; at += 1) bed.down.add(`10.64.1.${at}`);
  bed.reading = Promise.withResolvers<void>();
  await bed.clock.advance(1800);
  assert.deepEqual([bed.readings, bed.changes.length], [1, 0]);
  const before = bed.sent.length;
  await bed.clock.advance(1000);
  assert.ok(bed.sent.length - before >= 50, `${bed.sent.length - before} probes while the table is read`);
  bed.reading.resolve();
  await bed.clock.advance(1);
  assert.deepEqual([bed.readings, bed.changes.length], [1, 50]);
  for (const [at, one] of gateways.entries()) assert.equal(bed.remote("one", one), `10.64.2.${at}`);
  await bed.clock.advance(600);
  assert.deepEqual([bed.readings, bed.conntrack.list({ family: 4 })], [2, []]);
  await bed.stop();
});

test("a router whose process is away stays with its clients while its kernel forwards on, also when its pod is not ready; its flows are deleted when it dies meanwhile", async () => {
  using bed = new RouterProbeBed([flow("10.64.0.7", "10.64.0.8"), flow("10.64.0.6", "10.64.2.8")]);
  bed.use("one", "10.64.0.7");
  await bed.clock.advance(3000);
  const isReady = (is: boolean): void => {
    bed.routers[0] = router("a", "10.64.0.8", is);
    bed.routersOfClients.routersChanged();
  };
  const flows = (): readonly string[] => bed.conntrack.list({ family: 4 }).map(({ reply }) => String(reply.src));
  for (const awayMs of [3000, 20_000]) {
    bed.away.add("10.64.0.8");
    await bed.clock.advance(500);
    isReady(false);
    await bed.clock.advance(awayMs);
    bed.away.clear();
    isReady(true);
    await bed.clock.advance(2000);
    assert.deepEqual([bed.changes, bed.health, flows().length], [[], "ok", 2]);
    assert.equal(bed.remote("one"), String(SERVICE));
  }
  bed.away.add("10.64.0.8");
  isReady(false);
  await bed.clock.advance(5000);
  bed.down.add("10.64.0.8");
  bed.sent.length = 0;
  await bed.clock.advance(3000);
  assert.deepEqual([bed.changes, flows()], [[KEY], ["10.64.2.8"]]);
  // New flows are the Service's, to whom the pod is not ready.
  assert.equal(bed.remote("one"), String(SERVICE));
  assert.match(bed.health, /a of Egress/);
  await bed.clock.advance(60_000);
  bed.sent.length = 0;
  await bed.clock.advance(5000);
  assert.deepEqual([bed.health, bed.sent.filter(({ to }) => to === "10.64.0.8")], ["ok", []]);
  await bed.stop();
});

test("a router whose pod ends, or was dead before it was not ready, is probed no more", async () => {
  using bed = new RouterProbeBed();
  bed.use("one", "10.64.0.7");
  await bed.clock.advance(3000);
  bed.routers[0] = { ...router("a", "10.64.0.8", false), isEnding: true };
  bed.down.add("10.64.1.8");
  await bed.clock.advance(2000);
  bed.routers[1] = router("b", "10.64.1.8", false);
  bed.routersOfClients.routersChanged();
  await bed.clock.advance(10);
  bed.sent.length = 0;
  await bed.clock.advance(5000);
  assert.deepEqual([...new Set(bed.sent.map(({ to }) => to))], ["10.64.2.8"]);
  await bed.stop();
});
