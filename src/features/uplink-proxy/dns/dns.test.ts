import assert from "node:assert/strict";
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { DEFAULT_SETTINGS } from "#base/uplink-model";
import { character } from "#test/characters";
import { dnsServer } from "#test/dns-server";
import type { DnsErrorCode } from "./errors.ts";
import { DnsError, type DnsRecord, type DnsUplink, parseHosts, type Query, queryServers, UplinkDns } from "./index.ts";
import { serversToAsk } from "./query.ts";

const TIMEOUT = { timeout: 20_000 };
const NEVER = new AbortController().signal;

const address = (text: string): IpAddress => IpAddress.parse(text);
const records = (ttlSeconds: number, ...texts: string[]): DnsRecord[] =>
  texts.map((text) => ({ address: address(text), ttlSeconds }));

function way(name: string, fields: Partial<DnsUplink> = {}): DnsUplink {
  return { name, servers: [`server-of-${name}`], searchDomains: [], sources: [address("192.0.2.10")], ...fields };
}

/** A resolver over servers that answer as told; `asked` has each question. */
class Bed {
  readonly clock = new FakeClock();
  readonly asked: string[] = [];
  answers: Record<string, readonly DnsRecord[] | DnsErrorCode | Deferred<readonly DnsRecord[]>> = {};
  readonly dns: UplinkDns;

  constructor(hostsPath = "/nonexistent/hosts") {
    const query: Query = async (name, _families, { servers }) => {
      const [server = "system"] = servers;
      this.asked.push(`${server} ${name}`);
      const answer = this.answers[`${server} ${name}`] ?? this.answers[server] ?? "not-found";
      if (typeof answer === "string") throw new DnsError(answer, answer);
      return answer instanceof Deferred ? await answer.promise : answer;
    };
    this.dns = new UplinkDns({
      clock: this.clock,
      settings: () => DEFAULT_SETTINGS.dns,
      query,
      hostsPath,
      systemServers: () => ["10.0.0.53"],
    });
  }

  async resolve(name: string, uplink: DnsUplink, others: readonly DnsUplink[] = []): Promise<string> {
    try {
      const { addresses, via, isStale } = await this.dns.resolve(name, uplink, { others, signal: NEVER });
      return `${addresses.join(" ")} via ${via}${isStale ? " stale" : ""}`;
    } catch (error) {
      assert.ok(error instanceof DnsError);
      return error.code;
    }
  }
}

test("UplinkDns: each uplink gets the answer of its own servers", async () => {
  const bed = new Bed();
  bed.answers = { "server-of-a": records(60, "203.0.113.1"), "server-of-b": records(60, "203.0.113.2") };
  assert.equal(await bed.resolve("x.example", way("a"), [way("b")]), "203.0.113.1 via a");
  assert.equal(await bed.resolve("x.example", way("b"), [way("a")]), "203.0.113.2 via b");
});

test("UplinkDns: cached for the TTL, within 5 s and 5 min, and a denial for 5 s", async () => {
  const bed = new Bed();
  for (const [ttl, keptSeconds] of [
    [0, 5],
    [60, 60],
    [86_400, 300],
  ] as const) {
    const name = `${ttl}.example`;
    bed.answers = { "server-of-a": records(ttl, "203.0.113.1") };
    bed.asked.length = 0;
    await bed.resolve(name, way("a"));
    assert.equal(bed.dns.cached(name, way("a"))?.via, "a");
    await bed.clock.advance(keptSeconds * 1000 - 1);
    await bed.resolve(name, way("a"));
    assert.equal(bed.asked.length, 1);
    await bed.clock.advance(1);
    assert.equal(bed.dns.cached(name, way("a")), undefined);
    await bed.resolve(name, way("a"));
    assert.equal(bed.asked.length, 2);
  }
  bed.answers = {};
  bed.asked.length = 0;
  assert.equal(await bed.resolve("no.example", way("a"), [way("b")]), "not-found");
  assert.equal(await bed.resolve("no.example", way("a"), [way("b")]), "not-found");
  // What the uplink's own servers deny is asked nowhere else.
  assert.deepEqual(bed.asked, ["server-of-a no.example"]);
  await bed.clock.advance(5000);
  await bed.resolve("no.example", way("a"));
  assert.equal(bed.asked.length, 2);
});

test("UplinkDns: silent servers: those of other uplinks in order, then the system's, and the answer names the source", async () => {
  const bed = new Bed();
  const [a, b, c] = [way("a"), way("b"), way("c")];
  bed.answers = { "server-of-a": "failed", "server-of-b": "failed", "server-of-c": records(60, "203.0.113.3") };
  assert.equal(await bed.resolve("x.example", a, [a, b, c]), "203.0.113.3 via c");
  bed.answers = {
    "server-of-a": "failed",
    "server-of-b": "failed",
    "server-of-c": "failed",
    system: records(60, "203.0.113.9"),
  };
  assert.equal(await bed.resolve("y.example", a, [b]), "203.0.113.9 via system");
  bed.answers = { ...bed.answers, system: "failed" };
  assert.equal(await bed.resolve("z.example", a, [b]), "failed");
  assert.equal(await bed.resolve("w.example", way("d", { servers: [] }), [way("c")]), "failed");
});

test("UplinkDns: the system's servers too are asked from the uplink's address, never by the way of the main table", async () => {
  const sources: string[] = [];
  const dns = new UplinkDns({
    clock: new FakeClock(),
    settings: () => DEFAULT_SETTINGS.dns,
    hostsPath: "/nonexistent/hosts",
    query: async (_name, _families, { servers, source4, source6 }) => {
      sources.push(`${servers[0] ?? "system"} ${source4} ${source6}`);
      throw new DnsError("failed", "failed");
    },
  });
  await assert.rejects(dns.resolve("x.example", way("a"), { others: [], signal: NEVER }), { code: "failed" });
  assert.deepEqual(sources, ["server-of-a 192.0.2.10 undefined", "system 192.0.2.10 undefined"]);
});

test("UplinkDns: without an uplink only near servers are asked, unbound: a packet to others might take an uplink that costs too much", async () => {
  const asked: string[] = [];
  let system: readonly string[] = ["[2001:db8::53]:53", "10.43.0.10:53", "192.0.2.53"];
  const dns = new UplinkDns({
    clock: new FakeClock(),
    settings: () => DEFAULT_SETTINGS.dns,
    hostsPath: "/nonexistent/hosts",
    systemServers: () => system,
    query: async (_name, families, { servers, source4, source6 }) => {
      asked.push(`${servers.join()} ${families.join()} ${source4} ${source6}`);
      return records(60, "10.43.0.1");
    },
  });
  const isNear = (server: IpAddress): boolean => server.toString().startsWith("10.43.");
  const { addresses } = await dns.resolveNear("registry.lan", { isNear, signal: NEVER });
  assert.deepEqual(addresses.map(String), ["10.43.0.1"]);
  assert.deepEqual(asked, ["10.43.0.10:53 4,6 undefined undefined"]);
  system = ["192.0.2.53"];
  await assert.rejects(dns.resolveNear("registry.lan", { isNear, signal: NEVER }), { code: "failed" });
  assert.equal(asked.length, 1);
});

/** A resolver whose system servers are asked by `answer`; `sources` has the source of each query. */
function systemBed(systemServers: readonly string[], answer: (source: string) => Promise<readonly DnsRecord[]>) {
  const clock = new FakeClock();
  const sources: string[] = [];
  const dns = new UplinkDns({
    clock,
    settings: () => DEFAULT_SETTINGS.dns,
    hostsPath: "/nonexistent/hosts",
    systemServers: () => systemServers,
    query: async (_name, _families, { source4 }) => {
      sources.push(String(source4));
      return await answer(String(source4));
    },
  });
  const a = way("a", { servers: [], sources: [address("192.0.2.10")] });
  const b = way("b", { servers: [], sources: [address("198.51.100.10")] });
  return { clock, sources, dns, a, b, options: { others: [], signal: NEVER } };
}

test(
  "UplinkDns: the system's servers are asked for each uplink by its own way: one whose way is dead leaves the other its answer",
  TIMEOUT,
  async () => {
    const dead = new Deferred<readonly DnsRecord[]>();
    const { sources, dns, a, b, options } = systemBed(["10.0.0.53"], (source) =>
      source === "192.0.2.10" ? dead.promise : Promise.resolve(records(60, "203.0.113.2")),
    );
    const overA = dns.resolve("x.example", a, options);
    assert.deepEqual(await dns.resolve("x.example", b, options), {
      addresses: [address("203.0.113.2")],
      via: "system",
      isStale: false,
    });
    assert.deepEqual(sources, ["192.0.2.10", "198.51.100.10"]);
    dead.reject(new DnsError("failed", "no answer"));
    await assert.rejects(overA, { code: "failed" });
    await dns.resolve("y.example", b, options);
    assert.deepEqual(sources.slice(2), ["198.51.100.10"]);
  },
);

test("UplinkDns: what the system's servers answer by one uplink's way is not used for another, fresh or expired", async () => {
  const { clock, sources, dns, a, b, options } = systemBed(["10.0.0.53"], async (source) => {
    if (source !== "192.0.2.10") throw new DnsError("failed", "no answer");
    return records(60, "203.0.113.1");
  });
  assert.equal((await dns.resolve("x.example", a, options)).via, "system");
  await assert.rejects(dns.resolve("x.example", b, options), { code: "failed" });
  await clock.advance(60_000);
  await assert.rejects(dns.resolve("x.example", b, options), { code: "failed" });
  assert.deepEqual(sources, ["192.0.2.10", "198.51.100.10", "198.51.100.10"]);
});

test("UplinkDns: the system's servers on loopback, which are asked unbound, answer for all uplinks at once", async () => {
  const { sources, dns, a, b, options } = systemBed(["127.0.0.53"], async () => records(60, "203.0.113.1"));
  const both = [a, b].map((uplink) => dns.resolve("x.example", uplink, options));
  for (const { via } of await Promise.all(both)) assert.equal(via, "system");
  assert.equal((await dns.resolve("x.example", b, options)).via, "system");
  assert.equal(sources.length, 1);
});

test("UplinkDns: an uplink that is named system has a cache of its own", async () => {
  const bed = new Bed();
  bed.answers = { system: records(60, "203.0.113.9"), "server-of-system": records(60, "203.0.113.1") };
  assert.equal(await bed.resolve("x.example", way("a", { servers: [] })), "203.0.113.9 via system");
  assert.equal(await bed.resolve("x.example", way("system")), "203.0.113.1 via system");
});

test("serversToAsk: no server is queried without a source of its family; servers on loopback are queried unbound", () => {
  const source4 = address("192.0.2.10");
  const source6 = address("2001:db8::10");
  const servers = ["192.0.2.53", "192.0.2.54:5353", "2001:db8::53", "[2001:db8::54]:53"];
  const ask = (...args: Parameters<typeof serversToAsk>) => {
    const { servers: all, isBound } = serversToAsk(...args);
    return `${all.join(" ")}${isBound ? " bound" : ""}`;
  };
  assert.equal(ask({ servers, source4 }, []), "192.0.2.53 192.0.2.54:5353 bound");
  assert.equal(ask({ servers, source6 }, []), "2001:db8::53 [2001:db8::54]:53 bound");
  assert.equal(ask({ servers, source4, source6 }, []), `${servers.join(" ")} bound`);
  assert.equal(ask({ servers: [], source4 }, ["10.0.0.53", "2001:db8::53"]), "10.0.0.53 bound");
  assert.equal(ask({ servers: [], source4 }, ["10.0.0.53", "127.0.0.53"]), "127.0.0.53");
  assert.equal(ask({ servers: [], source4 }, ["[::1]:53"]), "[::1]:53");
  assert.equal(ask({ servers: ["2001:db8::53"], source4 }, ["10.0.0.53"]), " bound");
});

test("UplinkDns: silent servers are passed over for 5 s, so that one request waits for them and not each", async () => {
  const bed = new Bed();
  bed.answers = { "server-of-a": "failed", "server-of-b": records(60, "203.0.113.2") };
  await bed.resolve("x.example", way("a"), [way("b")]);
  await bed.resolve("y.example", way("a"), [way("b")]);
  assert.deepEqual(bed.asked, ["server-of-a x.example", "server-of-b x.example", "server-of-b y.example"]);
  await bed.clock.advance(5000);
  bed.answers = { "server-of-a": records(60, "203.0.113.1") };
  assert.equal(await bed.resolve("y.example", way("a"), [way("b")]), "203.0.113.1 via a");
});

test("UplinkDns: after an error of the servers the next ones are asked, and an answer that has expired is used", async () => {
  const bed = new Bed();
  bed.answers = { "server-of-a": "server-error", "server-of-b": records(60, "203.0.113.2") };
  assert.equal(await bed.resolve("x.example", way("a"), [way("b")]), "203.0.113.2 via b");
  bed.answers = { "server-of-a": records(60, "203.0.113.1") };
  assert.equal(await bed.resolve("x.example", way("a")), "203.0.113.1 via a");
  await bed.clock.advance(60_000);
  bed.answers = { "server-of-a": "server-error", "server-of-b": records(60, "203.0.113.2") };
  assert.equal(await bed.resolve("x.example", way("a"), [way("b")]), "203.0.113.1 via a stale");
});

test("UplinkDns: servers that answered another name meanwhile are not silent, whatever they answered", async () => {
  for (const meanwhile of [records(60, "203.0.113.1"), "not-found", "server-error"] as const) {
    const bed = new Bed();
    const silence = new Deferred<readonly DnsRecord[]>();
    bed.answers = {
      "server-of-a bad.example": silence,
      "server-of-a other.example": meanwhile,
      "server-of-a": records(60, "203.0.113.9"),
      "server-of-b": records(60, "203.0.113.2"),
    };
    const bad = bed.resolve("bad.example", way("a"));
    await bed.clock.advance(1000);
    await bed.resolve("other.example", way("a"));
    await bed.clock.advance(1000);
    silence.reject(new DnsError("failed", "no answer"));
    assert.equal(await bad, "not-found");
    assert.equal(await bed.resolve("good.example", way("a"), [way("b")]), "203.0.113.9 via a");
  }
});

for (const others of ["server-error", "not-found"] as const) {
  test(`UplinkDns: servers that are silent are asked again when others answer with ${others}, and what they answer ends their silence`, async () => {
    const bed = new Bed();
    bed.answers = {
      "server-of-a": records(60, "203.0.113.1"),
      "server-of-a bad.example": "failed",
      "server-of-b": others,
      system: others === "not-found" ? "not-found" : "failed",
    };
    assert.equal(
      await bed.resolve("bad.example", way("a"), [way("b")]),
      others === "not-found" ? "not-found" : "failed",
    );
    assert.equal(await bed.resolve("good.example", way("a"), [way("b")]), "203.0.113.1 via a");
    assert.equal(bed.asked.at(-1), "server-of-a good.example");
    bed.asked.length = 0;
    assert.equal(await bed.resolve("better.example", way("a"), [way("b")]), "203.0.113.1 via a");
    assert.deepEqual(bed.asked, ["server-of-a better.example"]);
  });
}

test("UplinkDns: a broken name that is asked again and again does not prolong the silence", async () => {
  const bed = new Bed();
  bed.answers = {
    "server-of-a": records(60, "203.0.113.1"),
    "server-of-a bad.example": "failed",
    "server-of-b": records(60, "203.0.113.2"),
    "server-of-b bad.example": "failed",
    system: "failed",
  };
  for (let second = 0; second < 5; second += 1) {
    assert.equal(await bed.resolve("bad.example", way("a"), [way("b")]), "failed");
    await bed.clock.advance(1000);
  }
  assert.equal(await bed.resolve("good.example", way("a"), [way("b")]), "203.0.113.1 via a");
});

test("UplinkDns: when no server answers, an answer up to an hour old is served, and counted", async () => {
  const bed = new Bed();
  bed.answers = { "server-of-a": records(60, "203.0.113.1") };
  await bed.resolve("x.example", way("a"));
  bed.answers = { "server-of-a": "failed", system: "failed" };
  await bed.clock.advance(60_000 + 3_600_000);
  assert.equal(await bed.resolve("x.example", way("a")), "203.0.113.1 via a stale");
  assert.equal(bed.dns.staleAnswers, 1);
  await bed.clock.advance(6000);
  assert.equal(await bed.resolve("x.example", way("a")), "failed");
});

test("UplinkDns: search domains are for names without a dot", async () => {
  const bed = new Bed();
  const uplink = way("a", { searchDomains: ["one.example", "two.example"] });
  bed.answers = { "server-of-a registry.two.example": records(60, "203.0.113.1") };
  assert.equal(await bed.resolve("registry", uplink), "203.0.113.1 via a");
  assert.equal(bed.dns.cached("registry", uplink)?.addresses.length, 1);
  assert.equal(await bed.resolve("registry.x", uplink), "not-found");
  assert.deepEqual(bed.asked, [
    "server-of-a registry.one.example",
    "server-of-a registry.two.example",
    "server-of-a registry.x",
  ]);
});

test("UplinkDns: simultaneous requests share one query, and one that is aborted leaves it to the others", async () => {
  const bed = new Bed();
  const answer = new Deferred<readonly DnsRecord[]>();
  bed.answers = { "server-of-a": answer };
  const leaving = new AbortController();
  const options = { others: [], signal: leaving.signal };
  const first = bed.dns.resolve("x.example", way("a"), options);
  const second = bed.resolve("x.example", way("a"));
  await bed.clock.advance(0);
  leaving.abort(new Error("left"));
  await assert.rejects(first, /left/);
  answer.resolve(records(60, "203.0.113.1"));
  assert.equal(await second, "203.0.113.1 via a");
  assert.equal(bed.asked.length, 1);
});

test("UplinkDns: at most 2,000 names are remembered of an uplink", async () => {
  const bed = new Bed();
  bed.answers = { "server-of-a": records(300, "203.0.113.1") };
  for (let at = 0; at < 2001; at += 1) await bed.dns.resolve(`${at}.example`, way("a"), { others: [], signal: NEVER });
  assert.equal(bed.dns.cached("0.example", way("a")), undefined);
  assert.ok(bed.dns.cached("1.example", way("a")) !== undefined);
});

test("hosts: names of the system's own list, read again when it changes; a missing file has none", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "uplink-hosts-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, "hosts");
  const bed = new Bed(path);
  assert.deepEqual(await bed.dns.hosts("a"), []);
  writeFileSync(path, "# c\n192.0.2.1 A a.example. # x\n2001:db8::1\ta\nnonsense a\n192.0.2.2\n");
  utimesSync(path, 1, 1);
  assert.deepEqual(await bed.dns.hosts("a"), []);
  await bed.clock.advance(5000);
  assert.deepEqual((await bed.dns.hosts("a")).map(String), ["192.0.2.1", "2001:db8::1"]);
  assert.deepEqual((await bed.dns.hosts("a.example")).map(String), ["192.0.2.1"]);
  rmSync(path);
  await bed.clock.advance(5000);
  assert.deepEqual(await bed.dns.hosts("a"), []);
});

test("hosts: any text is read without an error (fuzz)", () => {
  fc.assert(
    fc.property(fc.string({ unit: character }), (text) => {
      for (const [name, addresses] of parseHosts(text)) {
        assert.equal(name, name.toLowerCase());
        assert.ok(addresses.length > 0);
      }
    }),
  );
});

test("queryServers: asks from the uplink's source, both families at once, with TTLs", TIMEOUT, async (t) => {
  const { server, sources } = await dnsServer(t, (_name, type) =>
    type === 1 ? ["203.0.113.1", "203.0.113.2"] : ["2001:db8::1"],
  );
  const path = { servers: [server], source4: address("127.0.0.9") };
  const options = { timeoutMs: 5000, signal: NEVER, clock: systemClock };
  const found = await queryServers("x.example", [4, 6], path, options);
  assert.deepEqual(found.map(({ address: each, ttlSeconds }) => `${each} ${ttlSeconds}`).sort(), [
    "2001:db8::1 77",
    "203.0.113.1 77",
    "203.0.113.2 77",
  ]);
  assert.deepEqual(new Set(sources), new Set(["127.0.0.9"]));
});

test(
  "queryServers: a denial and silence are distinguished; the deadline holds, and a dead first server is survived",
  TIMEOUT,
  async (t) => {
    const dead = await dnsServer(t, () => "silent");
    const denying = await dnsServer(t, () => "nxdomain");
    const alive = await dnsServer(t, (_name, type) => (type === 1 ? ["203.0.113.1"] : []));
    const ask = (servers: readonly string[], timeoutMs: number, families: readonly (4 | 6)[] = [4]) =>
      queryServers("x.example", families, { servers }, { timeoutMs, signal: NEVER, clock: systemClock });
    await assert.rejects(ask([denying.server], 5000), { name: "DnsError", code: "not-found" });
    await assert.rejects(ask([alive.server], 5000, [6]), { name: "DnsError", code: "not-found" });
    const before = systemClock.monotonic();
    await assert.rejects(ask([dead.server], 300), { name: "DnsError", code: "failed" });
    const tookMs = systemClock.monotonic() - before;
    assert.ok(tookMs >= 290 && tookMs < 700, `${tookMs}`);
    assert.equal((await ask([dead.server, alive.server], 2000)).length, 1);
  },
);

test("queryServers: an answer with an error is no silence, also beside a server that is silent", TIMEOUT, async (t) => {
  const dead = await dnsServer(t, () => "silent");
  const ask = (servers: readonly string[], families: readonly (4 | 6)[] = [4]) => {
    const options = { timeoutMs: 1000, signal: NEVER, clock: systemClock };
    return queryServers("x.example", families, { servers }, options);
  };
  for (const rcode of ["formerr", "servfail", "notimp", "refused"] as const) {
    const { server } = await dnsServer(t, () => rcode);
    await assert.rejects(ask([server]), { name: "DnsError", code: "server-error" }, rcode);
    await assert.rejects(ask([dead.server, server]), { name: "DnsError", code: "server-error" }, rcode);
  }
  const half = await dnsServer(t, (_name, type) => (type === 1 ? "silent" : []));
  await assert.rejects(ask([half.server], [4, 6]), { name: "DnsError", code: "server-error" });
});

test("UplinkDns: a name that the servers answer with an error stops no other name", TIMEOUT, async (t) => {
  const { server } = await dnsServer(t, (name) => (name === "bad.example" ? "servfail" : ["203.0.113.1"]));
  const asked: string[] = [];
  const dns = new UplinkDns({
    clock: systemClock,
    settings: () => DEFAULT_SETTINGS.dns,
    hostsPath: "/nonexistent/hosts",
    query: async (name, families, path, options) => {
      if (path.servers.length === 0) throw new DnsError("failed", "the system has no servers here");
      asked.push(name);
      return await queryServers(name, families, path, options);
    },
  });
  const uplink = way("a", { servers: [server], sources: [address("127.0.0.9")] });
  const options = { others: [], signal: NEVER };
  await assert.rejects(dns.resolve("bad.example", uplink, options), { code: "server-error" });
  assert.equal((await dns.resolve("good.example", uplink, options)).via, "a");
  assert.deepEqual(asked, ["bad.example", "good.example"]);
});

test("queryServers: one family that does not answer costs 250 ms, not the deadline", TIMEOUT, async (t) => {
  const { server } = await dnsServer(t, (_name, type) => (type === 1 ? ["203.0.113.1"] : "silent"));
  const before = systemClock.monotonic();
  const found = await queryServers(
    "x.example",
    [4, 6],
    { servers: [server] },
    { timeoutMs: 5000, signal: NEVER, clock: systemClock },
  );
  assert.equal(found.length, 1);
  assert.ok(systemClock.monotonic() - before < 1000);
});

test("queryServers: an abort ends the question with the signal's reason", TIMEOUT, async (t) => {
  const { server } = await dnsServer(t, () => "silent");
  const stop = new AbortController();
  const asked = queryServers(
    "x.example",
    [4],
    { servers: [server] },
    { timeoutMs: 5000, signal: stop.signal, clock: systemClock },
  );
  stop.abort(new Error("left"));
  await assert.rejects(asked, /left/);
});

test(
  "queryServers: a slow server has all of the time; a question that got lost is asked again soon",
  TIMEOUT,
  async (t) => {
    const answer = (_name: string, type: number) => (type === 1 ? ["203.0.113.1"] : "nxdomain");
    const options = { signal: NEVER, clock: systemClock };
    const ask = (server: string, timeoutMs: number) =>
      queryServers("x.example", [4], { servers: [server] }, { ...options, timeoutMs });
    const [slow, slower] = await Promise.all([
      dnsServer(t, answer, { delayMs: 1300 }),
      dnsServer(t, answer, { delayMs: 4500 }),
    ]);
    const [first, second] = await Promise.all([ask(slow.server, 2000), ask(slower.server, 8000)]);
    assert.deepEqual([first.length, second.length], [1, 1]);
    let questions = 0;
    const lossy = await dnsServer(t, (name, type) => (questions++ === 0 ? "silent" : answer(name, type)));
    const before = systemClock.monotonic();
    assert.equal((await ask(lossy.server, 8000)).length, 1);
    assert.ok(systemClock.monotonic() - before < 1500);
  },
);

test("UplinkDns: an answer that policy forbids counts as none: the next uplink's servers are queried, and `denied` is the error when all are so", async () => {
  const zone: Record<string, string> = { a: "127.0.0.1", b: "203.0.113.1", system: "192.168.0.1" };
  const clock = new FakeClock();
  const dns = new UplinkDns({
    clock,
    settings: () => DEFAULT_SETTINGS.dns,
    hostsPath: "/nonexistent/hosts",
    query: async (_name, _families, { servers }) => {
      const at = (servers[0] ?? "system").replace("server-of-", "");
      return [{ address: address(zone[at] ?? "0.0.0.0"), ttlSeconds: 60 }];
    },
  });
  const accepts = ([first]: readonly IpAddress[]): boolean => first?.isLoopback !== true;
  const options = { others: [way("a"), way("b")], signal: NEVER, accepts };
  assert.equal((await dns.resolve("x.example", way("a"), options)).via, "b");
  zone["b"] = zone["system"] = "127.0.0.2";
  await clock.advance(400_000);
  await assert.rejects(dns.resolve("x.example", way("a"), options), { code: "denied" });
});

test("UplinkDns: the time is for a name, the search domains' included", async () => {
  const given: number[] = [];
  const clock = new FakeClock();
  const dns = new UplinkDns({
    clock,
    settings: () => ({ ...DEFAULT_SETTINGS.dns, timeoutMs: 1000 }),
    hostsPath: "/nonexistent/hosts",
    query: async (_name, _families, _path, { timeoutMs }) => {
      given.push(timeoutMs);
      await clock.advance(400);
      throw new DnsError("not-found", "no such host");
    },
  });
  const uplink = { ...way("a"), searchDomains: ["one.example", "two.example"] };
  await assert.rejects(dns.resolve("x", uplink, { others: [], signal: NEVER }), { code: "not-found" });
  assert.deepEqual(given, [1000, 600, 200]);
});
