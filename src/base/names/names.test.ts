import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { character } from "#test/characters";
import { type DnsAnswer, dnsServer, TYPE_A } from "#test/dns-server";
import { NamesError, parseHosts, SystemNames } from "./index.ts";
import { inOrder } from "./order.ts";
import { candidatesOf, parseResolvConf } from "./resolv-conf.ts";

const never = new AbortController().signal;
const TIMEOUT = { timeout: 20_000 };

/** Names of a system with these files. */
function system(t: TestContext, resolvConf: string, hosts = ""): SystemNames {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-names-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [hostsPath, resolvConfPath] = [join(folder, "hosts"), join(folder, "resolv.conf")];
  writeFileSync(hostsPath, hosts);
  writeFileSync(resolvConfPath, resolvConf);
  return new SystemNames({ clock: systemClock }, { hostsPath, resolvConfPath });
}

/** The result of a name: its addresses, or the code of its failure. */
async function resolve(names: SystemNames, name: string): Promise<string> {
  try {
    return (await names.resolve(name, { signal: never })).map(String).sort().join(" ");
  } catch (error) {
    assert.ok(error instanceof NamesError, String(error));
    return error.code;
  }
}

const both =
  (four: DnsAnswer, six: DnsAnswer) =>
  (_name: string, type: number): DnsAnswer =>
    type === TYPE_A ? four : six;

test("parseResolvConf: servers, the last search list, options; invalid lines are ignored", () => {
  const text = `# first\nnameserver 10.0.0.10\n; x\nnameserver nonsense\nnameserver fd00::1 # y\ndomain old.example
search a.example. b.example\noptions timeout:1 ndots:5 attempts:3 rotate\nnameserver 10.0.0.12\nnameserver 10.0.0.13\n`;
  assert.deepEqual(parseResolvConf(text, "node-1.dc.example"), {
    servers: ["10.0.0.10", "fd00::1", "10.0.0.12"],
    search: ["a.example", "b.example"],
    ndots: 5,
    attempts: 3,
  });
  assert.deepEqual(parseResolvConf("", "node-1.dc.example"), {
    servers: ["127.0.0.1"],
    search: ["dc.example"],
    ndots: 1,
    attempts: 2,
  });
  assert.deepEqual(parseResolvConf("options ndots:99 attempts:0 ndots:x", "n").ndots, 15);
});

test("parseResolvConf, parseHosts: any text is read without an error (fuzz)", () => {
  const word = fc.constantFrom(
    "nameserver",
    "search",
    "options",
    "ndots:",
    "10.0.0.1",
    "fd00::1",
    "a.",
    "\n",
    " ",
    "#",
    "9",
  );
  const text = fc.oneof(
    fc.string({ unit: character }),
    fc.array(word).map((words) => words.join(" ")),
  );
  fc.assert(
    fc.property(text, (input) => {
      const { servers, search, ndots, attempts } = parseResolvConf(input, "host");
      assert.ok(servers.length >= 1 && servers.length <= 3 && search.length <= 32 && ndots <= 15 && attempts >= 1);
      for (const [name, addresses] of parseHosts(input)) assert.ok(name === name.toLowerCase() && addresses.length > 0);
    }),
  );
});

test("candidatesOf: names with few dots are looked for in the search list first, those that end with a dot never", () => {
  const search = ["ns.svc.cluster.local", "svc.cluster.local"];
  const of = (name: string, ndots: number): string => candidatesOf(name, { search, ndots }).join(" ");
  assert.equal(of("web", 1), "web.ns.svc.cluster.local web.svc.cluster.local web");
  assert.equal(of("web.ns", 1), "web.ns web.ns.ns.svc.cluster.local web.ns.svc.cluster.local");
  assert.equal(of("web.ns", 5), "web.ns.ns.svc.cluster.local web.ns.svc.cluster.local web.ns");
  assert.equal(of("web.", 5), "web");
});

test("inOrder: addresses of a kind that this host has come first, and of these IPv6", () => {
  const parse = (texts: string): IpAddress[] => texts.split(" ").map((text) => IpAddress.parse(text));
  const order = (addresses: string, own: string): string => inOrder(parse(addresses), parse(own)).map(String).join(" ");
  const mixed = "192.0.2.1 2001:db8::1 fd00::1";
  assert.equal(order(mixed, "10.0.0.1 127.0.0.1 ::1 fe80::1"), "192.0.2.1 2001:db8::1 fd00::1");
  assert.equal(order(mixed, "10.0.0.1 2001:db8::2"), "2001:db8::1 192.0.2.1 fd00::1");
  assert.equal(order(mixed, "10.0.0.1 fd00::2"), "fd00::1 192.0.2.1 2001:db8::1");
  assert.equal(order("127.0.0.1 ::1", "127.0.0.1 ::1"), "::1 127.0.0.1");
});

test("SystemNames: the hosts file, DNS for both families, the search list", TIMEOUT, async (t) => {
  const { server, asked } = await dnsServer(t, (name, type) => {
    if (name !== "web.ns.svc.example") return "nxdomain";
    return type === TYPE_A ? ["192.0.2.1"] : ["2001:db8::1"];
  });
  const names = system(
    t,
    `nameserver ${server}\nsearch svc.example\noptions ndots:2\n`,
    "198.51.100.7 Known known.example\n",
  );
  assert.equal(await resolve(names, "KNOWN"), "198.51.100.7");
  assert.equal(await resolve(names, "known.example."), "198.51.100.7");
  assert.equal(await resolve(names, "192.0.2.9"), "192.0.2.9");
  assert.equal(await resolve(names, "localhost"), "127.0.0.1 ::1");
  assert.equal(await resolve(names, "x.invalid"), "not-found");
  assert.deepEqual(asked, []);
  assert.equal(await resolve(names, "web.ns"), "192.0.2.1 2001:db8::1");
  assert.equal(await resolve(names, "web.ns."), "not-found");
  assert.equal(await resolve(names, "x".repeat(300)), "not-found");
});

test(
  "SystemNames: one family without an answer costs next to nothing; an answer that comes late counts",
  TIMEOUT,
  async (t) => {
    const half = await dnsServer(t, both(["192.0.2.1"], "silent"));
    const before = performance.now();
    assert.equal(await resolve(system(t, `nameserver ${half.server}\n`), "a.example"), "192.0.2.1");
    assert.ok(performance.now() - before < 800);
    const late = await dnsServer(t, async (_name, type) => {
      await new Promise((done) => setTimeout(done, 1500));
      return type === TYPE_A ? ["192.0.2.2"] : [];
    });
    assert.equal(await resolve(system(t, `nameserver ${late.server}\n`), "a.example"), "192.0.2.2");
  },
);

test(
  "SystemNames: servers that are silent or fail are survived; without any answer the failure is no denial",
  TIMEOUT,
  async (t) => {
    const dead = await dnsServer(t, () => "silent");
    const failing = await dnsServer(t, () => "servfail");
    const good = await dnsServer(t, both(["192.0.2.1"], []));
    const conf = (...servers: { readonly server: string }[]): string =>
      servers.map(({ server }) => `nameserver ${server}\n`).join("");
    assert.equal(await resolve(system(t, conf(dead, failing, good)), "a.example"), "192.0.2.1");
    assert.equal(await resolve(system(t, conf(failing)), "a.example"), "unavailable");
  },
);

test(
  "SystemNames: a caller that aborts does not affect others, and concurrent calls share a question",
  TIMEOUT,
  async (t) => {
    const answer = Promise.withResolvers<DnsAnswer>();
    const { server, asked } = await dnsServer(t, (_name, type) => (type === TYPE_A ? answer.promise : []));
    const names = system(t, `nameserver ${server}\n`);
    const leaving = new AbortController();
    const first = names.resolve("a.example", { signal: leaving.signal });
    const others = Array.from({ length: 20 }, () => resolve(names, "A.example"));
    leaving.abort(new Error("left"));
    await assert.rejects(first, /left/);
    answer.resolve(["192.0.2.1"]);
    assert.deepEqual(new Set(await Promise.all(others)), new Set(["192.0.2.1"]));
    assert.ok(asked.length <= 4, asked.join(", "));
  },
);

test(
  "SystemNames: without answers names of the hosts file resolve at once, and too many others are refused",
  TIMEOUT,
  async (t) => {
    const { server } = await dnsServer(t, () => "silent");
    const names = system(t, `nameserver ${server}\n`, "198.51.100.7 known\n");
    const stop = new AbortController();
    const waiting = Array.from({ length: 256 }, (_, at) => names.resolve(`${at}.example`, { signal: stop.signal }));
    const settled = Promise.allSettled(waiting);
    // They have read the files by then.
    assert.equal(await resolve(names, "known"), "198.51.100.7");
    const before = performance.now();
    assert.equal(await resolve(names, "known"), "198.51.100.7");
    assert.ok(performance.now() - before < 200);
    assert.equal(await resolve(names, "one-more.example"), "unavailable");
    stop.abort(new Error("enough"));
    for (const result of await settled) assert.equal(result.status, "rejected");
    // Questions without callers are not counted.
    const later = names.resolve("one-more.example", { signal: AbortSignal.timeout(50) });
    await assert.rejects(later, { name: "TimeoutError" });
  },
);
