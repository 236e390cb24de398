import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent } from "node:http";
import { createServer, type Server } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { type Clock, FakeClock, systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { freePort } from "#test/ports";
import type { HealthEvent } from "../events.ts";
import { connected, eventually, onBug, probe, running } from "../testing/probe.ts";
import {
  lacksHealthPort,
  type OpenService,
  type PortView,
  planPorts,
  type ServiceHealth,
  ServicePorts,
  serviceHealth,
} from "./index.ts";

const V4 = [IpAddress.parse("127.0.0.1"), IpAddress.parse("127.0.0.2")];
const V6 = [IpAddress.parse("::1")];

/** kube-proxy's body, byte by byte. */
const bodyOf = (localEndpoints: number, isHealthy: boolean): string =>
  `{\n\t"service": {\n\t\t"namespace": "ns",\n\t\t"name": "web"\n\t},\n\t"localEndpoints": ${localEndpoints},\n\t"serviceProxyHealthy": ${isHealthy}\n}`;

function service(name: string, port: number, localEndpoints: number): ServiceHealth {
  return { namespace: "ns", name, port, localEndpoints };
}

interface Bed {
  readonly ports: ServicePorts;
  readonly events: HealthEvent[];
  readonly health: { isServing: boolean };
}

function bed(clock: Clock = systemClock): Bed {
  const events: HealthEvent[] = [];
  const health = { isServing: true };
  const ports = new ServicePorts(
    { health, onEvent: (event) => events.push(event), clock, log: nullLogger, onBug },
    { lingerMs: 0 },
  );
  ports.setAddresses(4, V4);
  ports.setAddresses(6, V6);
  return { ports, events, health };
}

const open = (ports: ServicePorts, name: string): Promise<unknown> =>
  eventually(() => (ports.listenersFor(4, `ns/${name}`).length > 0 ? true : undefined));

test("ServicePorts: answers on every address of a family, with count, weight and proxy health, any path and method", async () => {
  const { ports, health } = bed();
  await using _run = running(ports);
  const port = await freePort();
  ports.setServices(4, [service("web", port, 2)]);
  await open(ports, "web");
  for (const host of ["127.0.0.1", "127.0.0.2"]) {
    for (const [path, method] of [
      ["/", "GET"],
      ["/healthz", "POST"],
      ["/any/path?x=y", "PUT"],
    ] as const) {
      const { code, headers, body } = await probe(port, { host, path, method });
      assert.equal(code, 200);
      assert.equal(body, bodyOf(2, true));
      assert.equal(headers["content-type"], "application/json");
      assert.equal(headers["x-content-type-options"], "nosniff");
      assert.equal(headers["x-load-balancing-endpoint-weight"], "2");
    }
  }
  await assert.rejects(probe(port, { host: "::1" }), /ECONNREFUSED/);
  health.isServing = false;
  const { code, headers, body } = await probe(port);
  assert.equal(code, 503);
  assert.equal(body, bodyOf(2, false));
  assert.equal(headers["x-load-balancing-endpoint-weight"], "2");
});

test("ServicePorts: without local endpoints it is 503 with weight 0, and each family counts its own", async () => {
  const { ports } = bed();
  await using _run = running(ports);
  const port = await freePort();
  ports.setServices(4, [service("web", port, 0)]);
  ports.setServices(6, [service("web", port, 1)]);
  await open(ports, "web");
  await eventually(() => (ports.size(6) === 1 ? true : undefined));
  const none = await probe(port);
  assert.deepEqual([none.code, none.headers["x-load-balancing-endpoint-weight"]], [503, "0"]);
  assert.equal((await probe(port, { host: "::1" })).code, 200);
});

test("ServicePorts: a change of endpoints or of other Services restarts no listener", async () => {
  const { ports } = bed();
  await using _run = running(ports);
  const [port, otherPort] = [await freePort(), await freePort()];
  ports.setServices(4, [service("web", port, 1)]);
  await open(ports, "web");
  const before = ports.listenersFor(4, "ns/web");
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  assert.equal((await probe(port, { agent })).code, 200);
  ports.setServices(4, [service("web", port, 0), service("other", otherPort, 1)]);
  await open(ports, "other");
  assert.deepEqual(ports.listenersFor(4, "ns/web"), before);
  const { code, headers } = await probe(port, { agent });
  assert.deepEqual([code, headers.connection], [503, "keep-alive"]);
  agent.destroy();
});

test("ServicePorts: a Service of one family is answered for in both, and one of both by the count of each", async () => {
  const { ports } = bed();
  await using _run = running(ports);
  const [single, dual] = [await freePort(), await freePort()];
  const at = async (port: number, host: string): Promise<string> => {
    const { code, headers } = await probe(port, { host });
    return `${code} ${headers["x-load-balancing-endpoint-weight"]}`;
  };
  ports.setServices(6, [service("dual", dual, 0)]);
  ports.setServices(4, [service("single", single, 2), service("dual", dual, 1)]);
  await eventually(() => (ports.size(4) === 2 && ports.size(6) === 2 ? true : undefined));
  assert.deepEqual([await at(single, "127.0.0.1"), await at(single, "::1")], ["200 2", "200 2"]);
  assert.deepEqual([await at(dual, "127.0.0.1"), await at(dual, "::1")], ["200 1", "503 0"]);
  ports.setServices(4, [service("dual", dual, 1)]);
  await eventually(() => (ports.size(4) === 1 && ports.size(6) === 1 ? true : undefined));
  await assert.rejects(probe(single, { host: "::1" }), /ECONNREFUSED/);
  ports.setServices(6, [service("dual", dual, 3)]);
  assert.equal(await at(dual, "::1"), "200 3");
});

test("ServicePorts: a changed number closes the old port; a port moves from one Service to another in one sync", async () => {
  const { ports, events } = bed();
  await using _run = running(ports);
  const [a, b] = [await freePort(), await freePort()];
  ports.setServices(4, [service("one", a, 1), service("two", b, 2)]);
  await open(ports, "two");
  ports.setServices(4, [service("one", b, 1), service("two", a, 2)]);
  await eventually(() => (ports.listenersFor(4, "ns/one")[0]?.port === b ? true : undefined));
  assert.match((await probe(b)).body, /"name": "one"/);
  assert.match((await probe(a)).body, /"name": "two"/);
  ports.setServices(4, [service("one", b, 1)]);
  await eventually(() => (ports.size(4) === 1 ? true : undefined));
  await assert.rejects(probe(a), /ECONNREFUSED/);
  assert.deepEqual(events, []);
});

test("ServicePorts: a connection that outlives its Service gets 503 with no endpoints, and is closed", async () => {
  const { ports } = bed();
  await using _run = running(ports);
  const port = await freePort();
  ports.setServices(4, [service("web", port, 3)]);
  await open(ports, "web");
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  assert.equal((await probe(port, { agent })).code, 200);
  ports.setServices(4, []);
  await eventually(() => (ports.size(4) === 0 ? true : undefined));
  const { code, headers, body } = await probe(port, { agent });
  assert.deepEqual([code, headers.connection, headers["x-load-balancing-endpoint-weight"]], [503, "close", "0"]);
  assert.match(body, /"localEndpoints": 0/);
  agent.destroy();
});

test("ServicePorts: listens at the addresses of NodePorts, follows them, and keeps those that stay", async () => {
  const { ports } = bed();
  await using _run = running(ports);
  const port = await freePort();
  ports.setAddresses(4, V4.slice(0, 1));
  ports.setServices(4, [service("web", port, 1)]);
  await open(ports, "web");
  await assert.rejects(probe(port, { host: "127.0.0.2" }), /ECONNREFUSED/);
  const [kept] = ports.listenersFor(4, "ns/web");
  ports.setAddresses(4, V4);
  await eventually(() => (ports.listenersFor(4, "ns/web").length === 2 ? true : undefined));
  assert.equal(ports.listenersFor(4, "ns/web")[0], kept);
  assert.equal((await probe(port, { host: "127.0.0.2" })).code, 200);
  ports.setAddresses(4, V4.slice(1));
  await eventually(() => (ports.listenersFor(4, "ns/web").length === 1 ? true : undefined));
  await assert.rejects(probe(port, { host: "127.0.0.1" }), /ECONNREFUSED/);
  ports.setAddresses(4, []);
  await eventually(() => (ports.size(4) === 0 ? true : undefined));
});

test("ServicePorts: a wildcard replaces the other addresses of its family, and leaves the port to the other family", async () => {
  const { ports } = bed();
  await using _run = running(ports);
  const port = await freePort();
  ports.setAddresses(6, [IpAddress.parse("::")]);
  ports.setAddresses(4, [...V4, IpAddress.parse("0.0.0.0"), IpAddress.parse("::")]);
  ports.setServices(6, [service("web", port, 1)]);
  ports.setServices(4, [service("web", port, 0)]);
  await open(ports, "web");
  await eventually(() => (ports.size(6) === 1 ? true : undefined));
  assert.equal((await probe(port, { host: "127.0.0.3" })).code, 503);
  assert.equal((await probe(port, { host: "::1" })).code, 200);
});

/** A listener of another program. */
async function squatter(port: number, host: string): Promise<Server> {
  const server = createServer().listen(port, host);
  await once(server, "listening");
  return server;
}

test("ServicePorts: an address that cannot be bound closes the Service's others, is reported once, and is tried again", async () => {
  const clock = new FakeClock();
  const { ports, events } = bed(clock);
  const run = running(ports);
  const port = await freePort();
  const other = await squatter(port, "127.0.0.2");
  const alsoOther = await squatter(port, "::1");
  ports.setServices(4, [service("web", port, 1)]);
  ports.setServices(6, [service("web", port, 1)]);
  await clock.advance(0);
  assert.deepEqual([ports.size(4), ports.size(6)], [0, 0]);
  await assert.rejects(probe(port), /ECONNREFUSED/);
  assert.deepEqual(
    events.map(({ about, type, reason }) => ({ about, type, reason })),
    [{ about: { namespace: "ns", name: "web" }, type: "Warning", reason: "FailedToStartServiceHealthcheck" }],
  );
  assert.match(events[0]?.note ?? "", new RegExp(`healthCheckNodePort ${port}.*127.0.0.2`));
  // 5, 10, 20, 40, 60, 60 s: seven attempts in this time, one Event.
  await clock.advance(200_000);
  assert.equal(events.length, 1);
  await clock.advance(420_000);
  assert.equal(events.length, 2);
  for (const server of [other, alsoOther]) {
    server.close();
    await once(server, "close");
  }
  await clock.advance(60_000);
  assert.deepEqual([ports.size(4), ports.size(6)], [1, 1]);
  assert.equal((await probe(port)).code, 200);
  const ended = run[Symbol.asyncDispose]();
  await clock.advance(0);
  await ended;
});

test("ServicePorts: a taken port is opened within 2 s after it becomes free, however long it was taken; a sync tries at once", async () => {
  const clock = new FakeClock();
  const { ports } = bed(clock);
  const run = running(ports);
  const port = await freePort();
  const other = await squatter(port, "127.0.0.1");
  ports.setServices(4, [service("web", port, 1)]);
  await clock.advance(600_000);
  other.close();
  await once(other, "close");
  assert.equal(ports.size(4), 0);
  await clock.advance(2000);
  assert.equal(ports.size(4), 1);
  ports.setServices(4, []);
  await clock.advance(0);
  const again = await squatter(port, "127.0.0.1");
  ports.setServices(4, [service("web", port, 1)]);
  await clock.advance(100);
  assert.equal(ports.size(4), 0);
  again.close();
  await once(again, "close");
  ports.setServices(4, [service("web", port, 1)]);
  await clock.advance(0);
  assert.equal(ports.size(4), 1);
  const ended = run[Symbol.asyncDispose]();
  await clock.advance(0);
  await ended;
});

test("ServicePorts: without addresses there is no retry, and with an address again there is", async () => {
  const clock = new FakeClock();
  const { ports, events } = bed(clock);
  const run = running(ports);
  const port = await freePort();
  const other = await squatter(port, "127.0.0.1");
  ports.setServices(4, [service("web", port, 1)]);
  await clock.advance(0);
  assert.equal(events.length, 1);
  ports.setAddresses(4, []);
  // A timer that was always due would keep the clock from getting anywhere.
  let wakeUps = 0;
  const after = clock.after.bind(clock);
  clock.after = (delayMs, callback) => {
    wakeUps += 1;
    return after(delayMs, callback);
  };
  await clock.advance(120_000);
  assert.ok(wakeUps <= 3, `${wakeUps} wake-ups with nothing to do`);
  other.close();
  await once(other, "close");
  ports.setAddresses(4, V4);
  await clock.advance(0);
  assert.equal(ports.size(4), 1);
  const ended = run[Symbol.asyncDispose]();
  await clock.advance(0);
  await ended;
});

test("ServicePorts: after the end its ports are free and its connections closed", async () => {
  const { ports } = bed();
  const run = running(ports);
  const port = await freePort();
  ports.setServices(4, [service("web", port, 1)]);
  await open(ports, "web");
  const socket = await connected(port);
  socket.removeAllListeners("error").on("error", () => socket.destroy());
  socket.resume();
  await run[Symbol.asyncDispose]();
  if (!socket.closed) await once(socket, "close");
  (await squatter(port, "127.0.0.1")).close();
});

function view(ports: readonly (readonly [address: string, state: string])[][], more: Partial<PortView["port"]> = {}) {
  return ports.map((endpoints) => ({
    port: {
      namespace: "ns",
      name: "web",
      externalTrafficPolicy: "Local" as const,
      healthCheckNodePort: 32_000,
      ...more,
    },
    endpoints: endpoints.map(([address, state]) => ({
      address: IpAddress.parse(address),
      ready: state.includes("ready"),
      terminating: state.includes("terminating"),
      isLocal: !state.includes("remote"),
    })),
  }));
}

test("serviceHealth: counts distinct addresses of local ready endpoints, never terminating ones", () => {
  const rows: [ReturnType<typeof view>, number | undefined][] = [
    [view([[]]), 0],
    [view([[["10.0.0.1", "ready"]]]), 1],
    [view([[["10.0.0.1", "ready"]], [["10.0.0.1", "ready"]]]), 1],
    [view([[["10.0.0.1", "ready"]], [["10.0.0.2", "ready"]]]), 2],
    [view([[["10.0.0.1", "ready remote"]]]), 0],
    [view([[["10.0.0.1", ""]]]), 0],
    [view([[["10.0.0.1", "terminating"]]]), 0],
    [view([[["10.0.0.1", "ready terminating"]]]), 0],
    [view([[["10.0.0.1", "ready"]]], { externalTrafficPolicy: "Cluster" }), undefined],
    [view([[["10.0.0.1", "ready"]]], { healthCheckNodePort: 0 }), undefined],
    [[], undefined],
  ];
  for (const [ports, count] of rows) assert.equal(serviceHealth(ports)?.localEndpoints, count, JSON.stringify(ports));
});

test("lacksHealthPort: true only for a load balancer's Service of policy Local", () => {
  const spec = { type: "LoadBalancer", externalTrafficPolicy: "Local" };
  const rows: [Parameters<typeof lacksHealthPort>[0], boolean][] = [
    [{ spec }, true],
    [{ spec: { ...spec, healthCheckNodePort: 0 } }, true],
    [{ spec: { ...spec, healthCheckNodePort: 32_000 } }, false],
    [{ spec: { ...spec, externalTrafficPolicy: "Cluster" } }, false],
    [{ spec: { ...spec, type: "NodePort" } }, false],
    [{}, false],
  ];
  for (const [one, lacks] of rows) assert.equal(lacksHealthPort(one), lacks, JSON.stringify(one));
});

test("ServicePorts: many listeners are opened in slices, and probes are answered between them", async () => {
  const ports = new ServicePorts(
    { health: { isServing: true }, clock: systemClock, log: nullLogger, onBug },
    { lingerMs: 0, sliceMs: 0 },
  );
  ports.setAddresses(4, V4);
  const numbers = new Set<number>();
  while (numbers.size < 20) numbers.add(await freePort());
  ports.setServices(
    4,
    Array.from(numbers, (port) => service(`s${port}`, port, 1)),
  );
  const sizes = new Set<number>();
  await using _run = running(ports);
  await eventually(() => {
    sizes.add(ports.size(4));
    return ports.size(4) === numbers.size ? true : undefined;
  });
  assert.ok(sizes.size > 10, `sizes seen: ${[...sizes]}`);
});

test("planPorts: applied, it opens the wanted port on every address; a second plan is empty; closes come first", () => {
  const address = fc.constantFrom("10.0.0.1", "10.0.0.2", "fd00::1").map((text) => IpAddress.parse(text));
  const addresses = fc.uniqueArray(address, { selector: String });
  const services = fc.uniqueArray(fc.tuple(fc.constantFrom("a", "b", "c", "d"), fc.integer({ min: 1, max: 3 })), {
    selector: ([name]) => name,
  });
  const heldNow = fc
    .array(fc.tuple(fc.constantFrom("ns/a", "ns/b", "ns/z"), fc.integer({ min: 1, max: 3 }), addresses))
    .map((all) => new Map(all.map(([key, port, bound]): [string, OpenService] => [key, { port, addresses: bound }])));
  fc.assert(
    fc.property(services, addresses, heldNow, (names, wantedAddresses, before) => {
      const wanted = names.map(([name, port]) => service(name, port, 1));
      const plan = planPorts(wanted, wantedAddresses, before);
      const now = new Map<string, OpenService>([...before].filter(([, { addresses: bound }]) => bound.length > 0));
      let isOpening = false;
      for (const change of plan) {
        if (change.op === "close") {
          assert.equal(isOpening, false);
          const left = (now.get(change.service)?.addresses ?? []).filter((one) => !change.addresses.includes(one));
          const port = now.get(change.service)?.port ?? 0;
          if (left.length === 0) now.delete(change.service);
          else now.set(change.service, { port, addresses: left });
        } else {
          isOpening = true;
          const key = `ns/${change.service.name}`;
          const kept = now.get(key);
          assert.ok(kept === undefined || kept.port === change.service.port);
          now.set(key, { port: change.service.port, addresses: [...(kept?.addresses ?? []), ...change.addresses] });
        }
      }
      assert.deepEqual(planPorts(wanted, wantedAddresses, now), []);
      assert.equal(now.size, wantedAddresses.length === 0 ? 0 : wanted.length);
      for (const { name, port } of wanted) {
        if (wantedAddresses.length === 0) continue;
        assert.equal(now.get(`ns/${name}`)?.port, port);
        const bound = now.get(`ns/${name}`)?.addresses.map(String).sort();
        assert.deepEqual(bound, wantedAddresses.map(String).sort());
      }
    }),
    { numRuns: 300 },
  );
});
