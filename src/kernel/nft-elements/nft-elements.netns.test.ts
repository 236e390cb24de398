import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, test } from "node:test";
import fc from "fast-check";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { NftTransaction, openNft } from "#kernel/nft";
import { until } from "#test/lab";
import { ElementBatch, FakeNftElements, type NftElements, openNftElements, openNftWriters } from "./index.ts";

const NAME = `isk-elem-${process.pid}`;
const table = { family: "ip", name: "isk" } as const;
before(() => createNetNs(NAME)[Symbol.dispose]());
after(() => deleteNetNs(NAME));

function open(): NftElements {
  using ns = openNetNs({ name: NAME });
  return openNftElements(ns);
}

function makeTable(): void {
  using ns = openNetNs({ name: NAME });
  using nft = openNft(ns);
  const tx = new NftTransaction(table).replaceTable().chain("lb-2").chain("lb-3");
  tx.set("ips", { key: "ipv4_addr" });
  tx.set("verdicts", { key: "ipv4_addr . inet_proto . inet_service", value: "verdict" });
  tx.set("eps", {
    typeof: true,
    key: "ip daddr . meta l4proto . th dport . numgen random mod 2",
    value: "ip daddr . th dport",
  });
  nft.run(tx);
}

beforeEach(makeTable);

function listed(set: string): string {
  const text = execFileSync("ip", ["netns", "exec", NAME, "nft", "list", "set", "ip", "isk", set], {
    encoding: "utf8",
  });
  return /elements = \{([^}]*)\}/.exec(text)?.[1]?.replace(/\s+/g, " ").trim() ?? "";
}

const mapListed = (set: string): string => {
  const text = execFileSync("ip", ["netns", "exec", NAME, "nft", "list", "map", "ip", "isk", set], {
    encoding: "utf8",
  });
  return /elements = \{([^}]*)\}/.exec(text)?.[1]?.replace(/\s+/g, " ").trim() ?? "";
};

const IP = "\x0a\x2b\x00\x01";
const KEY = `${IP}\x06\0\0\0\x00\x50\0\0`;
const slot = (number: number): string => `${KEY}${String.fromCharCode(number)}\0\0\0`;
const ENDPOINT = "\x0a\x2a\x00\x05\x1f\x90\0\0";

test("ElementBatch: what it writes is what nft(8) reads: sets, verdicts, slots and comments", async () => {
  using elements = open();
  const batch = new ElementBatch(table)
    .add("ips", IP)
    .add("verdicts", KEY, { kind: "goto", chain: "lb-2" }, "default/web:http")
    .add("verdicts", KEY.replace("\x50", "\x51"), { kind: "drop" })
    .add("eps", slot(0), ENDPOINT)
    .add("eps", slot(1), ENDPOINT);
  await elements.commit(batch);
  assert.equal(listed("ips"), "10.43.0.1");
  const verdicts = mapListed("verdicts");
  assert.match(verdicts, /10\.43\.0\.1 \. tcp \. 80 comment "default\/web:http" : goto lb-2/);
  assert.match(verdicts, /10\.43\.0\.1 \. tcp \. 81 : drop/);
  assert.equal(
    mapListed("eps"),
    "10.43.0.1 . tcp . 80 . 0 : 10.42.0.5 . 8080, 10.43.0.1 . tcp . 80 . 1 : 10.42.0.5 . 8080",
  );
  assert.deepEqual(
    elements.list(table, "verdicts").sort((a, b) => (a.key < b.key ? -1 : 1)),
    [
      { key: KEY, value: { kind: "goto", chain: "lb-2" }, comment: "default/web:http" },
      { key: KEY.replace("\x50", "\x51"), value: { kind: "drop" } },
    ],
  );
  assert.deepEqual(elements.find(table, "eps", slot(1)), { key: slot(1), value: ENDPOINT });
  assert.equal(elements.find(table, "eps", slot(2)), undefined);
});

test("commit: a value is replaced by delete and add in one batch", async () => {
  using elements = open();
  await elements.commit(new ElementBatch(table).add("verdicts", KEY, { kind: "goto", chain: "lb-2" }));
  await elements.commit(
    new ElementBatch(table).delete("verdicts", KEY).add("verdicts", KEY, { kind: "goto", chain: "lb-3" }),
  );
  assert.equal(mapListed("verdicts"), "10.43.0.1 . tcp . 80 : goto lb-3");
});

test("commit: 60,000 elements in one batch, over many messages, and the same are listed and flushed", async () => {
  using elements = open();
  const key = (number: number): string =>
    String.fromCharCode(10, (number >> 16) & 255, (number >> 8) & 255, number & 255);
  const batch = new ElementBatch(table);
  for (let number = 0; number < 60_000; number += 1) batch.add("ips", key(number));
  await elements.commit(batch);
  let found = new Set<string>();
  await until("the kernel has enlarged the set, and lists all", () => {
    found = new Set(elements.list(table, "ips").map((element) => element.key));
    return found.size === 60_000;
  });
  for (let number = 0; number < 60_000; number += 1) assert.ok(found.has(key(number)));
  await elements.commit(new ElementBatch(table).flush("ips").add("ips", IP));
  assert.equal(listed("ips"), "10.43.0.1");
});

const nft = (...words: string[]): string =>
  execFileSync("ip", ["netns", "exec", NAME, "nft", ...words], { encoding: "utf8" });

test("listInSlices: with a limit no more elements are read, and a later list has all", async () => {
  using elements = open();
  const keys = Array.from({ length: 5000 }, (_, at) => `\x0a\x2b${String.fromCharCode(at >> 8, at & 255)}`);
  const batch = new ElementBatch(table);
  for (const key of keys) batch.add("ips", key);
  await elements.commit(batch);
  let read = 0;
  const keep = (): boolean => {
    read += 1;
    return true;
  };
  assert.equal((await elements.listInSlices(table, "ips", { keep, limit: 10 })).length, 10);
  assert.ok(read < 2500, `${read} elements were read`);
  assert.equal((await elements.listInSlices(table, "ips")).length, keys.length);
});

test("ruleHandles: differ after anything is done to a rule, and are those of the table alone", () => {
  using elements = open();
  const of = (): string => elements.ruleHandles(table).join(", ");
  const empty = of();
  nft("add", "chain", "ip", table.name, "watched");
  nft("add", "rule", "ip", table.name, "watched", "drop");
  const first = of();
  assert.match(first, /watched \d+/);
  nft("add", "table", "ip", "other");
  nft("add", "chain", "ip", "other", "watched");
  nft("add", "rule", "ip", "other", "watched", "drop");
  assert.equal(of(), first);
  nft("flush", "chain", "ip", table.name, "watched");
  assert.equal(of(), empty);
  nft("add", "rule", "ip", table.name, "watched", "drop");
  assert.notEqual(of(), first);
  assert.deepEqual(elements.ruleHandles({ family: "ip6", name: "none" }), []);
});

test("rules: those of the table alone, by chain and in order, with comments and counters", () => {
  using elements = open();
  nft("add", "table", "inet", "counted");
  nft("add", "chain", "inet", "counted", "one", "{ type filter hook output priority 0 ; }");
  nft("add", "chain", "inet", "counted", "two");
  for (const rule of ["ip daddr 127.0.0.2 counter comment first", "jump two", 'counter drop comment "the last"'])
    nft("add", "rule", "inet", "counted", rule.startsWith("counter drop") ? "two" : "one", rule);
  nft("insert", "rule", "inet", "counted", "two", "counter packets 5 bytes 800 accept");
  assert.deepEqual(elements.rules({ family: "inet", name: "counted" }), [
    { chain: "one", comment: "first", counter: { packets: 0, bytes: 0 } },
    { chain: "one" },
    { chain: "two", counter: { packets: 5, bytes: 800 } },
    { chain: "two", comment: "the last", counter: { packets: 0, bytes: 0 } },
  ]);
  assert.deepEqual(elements.rules({ family: "ip6", name: "none" }), []);
});

test("generation: moves with every transaction, of ours and of others", async () => {
  using elements = open();
  const first = elements.generation();
  assert.equal(elements.generation(), first);
  await elements.commit(new ElementBatch(table).add("ips", IP));
  assert.equal(elements.generation(), first + 1);
  execFileSync("ip", ["netns", "exec", NAME, "nft", "flush", "ruleset"]);
  assert.ok(elements.generation() > first + 1);
  assert.throws(() => elements.list(table, "ips"), { name: "KernelError", code: "not-found" });
});

/** Steps that the fake must take as the kernel does, with the error that each ends with. */
test("FakeNftElements: accepts and refuses what the kernel does, and ends with the same elements", async () => {
  const keys = fc.constantFrom("\x0a\0\0\x01", "\x0a\0\0\x02", "\x0a\0\0\x03");
  const chains = fc.constantFrom("lb-2", "lb-3", "missing");
  const change = fc.oneof(
    fc.record({ op: fc.constant("add" as const), key: keys, chain: chains }),
    fc.record({ op: fc.constant("delete" as const), key: keys, chain: chains }),
    fc.record({ op: fc.constant("flush" as const), key: keys, chain: chains }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(change, { minLength: 1, maxLength: 4 }), { maxLength: 8 }), async (batches) => {
      makeTable();
      using real = open();
      const fake = new FakeNftElements();
      fake.addSet(table, "verdicts");
      for (const changes of batches) {
        const outcomes = await Promise.all([real, fake].map((elements) => outcome(elements, changes)));
        // The fake knows no chains: one that is missing only the kernel can refuse.
        if (changes.some(({ op, chain }) => op === "add" && chain === "missing")) return;
        assert.equal(outcomes[0], outcomes[1]);
      }
      const sorted = (elements: NftElements) =>
        elements.list(table, "verdicts").sort((a, b) => (a.key < b.key ? -1 : 1));
      assert.deepEqual(sorted(real), sorted(fake));
    }),
    { numRuns: 60 },
  );
});

async function outcome(
  elements: NftElements,
  changes: readonly { readonly op: "add" | "delete" | "flush"; readonly key: string; readonly chain: string }[],
): Promise<string> {
  const batch = new ElementBatch(table, { record: true });
  for (const { op, key, chain } of changes) {
    const full = `${key}\x06\0\0\0\0\x50\0\0`;
    if (op === "add") batch.add("verdicts", full, { kind: "goto", chain });
    else if (op === "delete") batch.delete("verdicts", full);
    else batch.flush("verdicts");
  }
  try {
    await elements.commit(batch);
    return "ok";
  } catch (error) {
    return (error as { code: string }).code;
  }
}

test("commit: more refusals than the socket can queue give the first one's error, and the next batch its own result", async () => {
  using elements = open();
  // The second number is above what the enlarged queue takes.
  for (const count of [1000, 50_000]) {
    const missing = new ElementBatch({ family: "ip", name: "missing" });
    for (let at = 0; at < count; at += 1) {
      if (at % 2 === 0) missing.delete("ips", IP);
      else missing.add("ips", IP);
    }
    await assert.rejects(elements.commit(missing), { name: "KernelError", code: "not-found", errno: "ENOENT" });
    await elements.commit(new ElementBatch(table).flush("ips").add("ips", IP));
    assert.equal(listed("ips"), "10.43.0.1");
  }
});

test("openNftWriters: names who changes nftables in the namespace, ourselves not", () => {
  using ns = openNetNs({ name: NAME });
  using nft = openNft(ns);
  using writers = openNftWriters(ns);
  nft.run(new NftTransaction({ family: "ip", name: "ours" }).addTable());
  assert.deepEqual(writers.take(), []);
  execFileSync("ip", ["netns", "exec", NAME, "nft", "add", "table", "ip", "theirs"]);
  assert.deepEqual(
    writers.take().map(({ name }) => name),
    ["nft"],
  );
  assert.deepEqual(writers.take(), []);
});

test("openNftWriters: threads of this process are not named in a PID namespace of their own either", () => {
  const face = (module: string): string => JSON.stringify(`${import.meta.dirname}/../${module}/index.ts`);
  const script = `
    const { openNftElements, openNftWriters, ElementBatch } = await import(${face("nft-elements")});
    const { NftTransaction, openNft } = await import(${face("nft")});
    const { openNetNs } = await import(${face("netns")});
    const { execFileSync } = await import("node:child_process");
    using ns = openNetNs({ path: "/run/netns/${NAME}" });
    using nft = openNft(ns);
    using elements = openNftElements(ns);
    using writers = openNftWriters(ns);
    const table = { family: "ip", name: "isk" };
    nft.run(new NftTransaction({ family: "ip", name: "inner" }).addTable());
    await elements.commit(new ElementBatch(table).add("ips", "\\x0a\\x01\\x00\\x00"));
    const large = new ElementBatch(table);
    for (let at = 0; at < 10_000; at += 1) large.add("ips", String.fromCharCode(10, 2, at >> 8, at & 255));
    await elements.commit(large);
    const ours = writers.take();
    execFileSync("nsenter", ["--net=/run/netns/${NAME}", "nft", "add", "table", "ip", "foreign"]);
    console.log(JSON.stringify([ours, writers.take().map(({ name }) => name)]));
  `;
  const words = ["--pid", "--fork", "--mount-proc", process.execPath, "--input-type=module", "--eval", script];
  assert.deepEqual(JSON.parse(execFileSync("unshare", words, { encoding: "utf8" })), [[], ["nft"]]);
});

test("openNftElements: in a user namespace of its own it takes batches as large as net.core.wmem_max allows, and refuses larger ones by name", () => {
  const face = (module: string): string => JSON.stringify(`${import.meta.dirname}/../${module}/index.ts`);
  const script = `
    const { openNftElements, ElementBatch } = await import(${face("nft-elements")});
    const { NftTransaction, openNft } = await import(${face("nft")});
    const { openNetNs } = await import(${face("netns")});
    using ns = openNetNs("own");
    using nft = openNft(ns);
    using elements = openNftElements(ns);
    const table = { family: "ip", name: "isk" };
    nft.run(new NftTransaction(table).addTable().set("ips", { key: "ipv4_addr" }));
    let at = 0;
    const filled = (bytes) => {
      const batch = new ElementBatch(table);
      for (; batch.byteLength < bytes; at += 1)
        batch.add("ips", String.fromCharCode(at >> 24, (at >> 16) & 255, (at >> 8) & 255, at & 255));
      return batch;
    };
    const { maxBatchBytes } = elements;
    await elements.commit(filled(maxBatchBytes - 4096));
    const error = await elements.commit(filled(maxBatchBytes + 1)).catch((one) => one);
    await elements.commit(new ElementBatch(table).flush("ips").add("ips", "\\x0a\\x00\\x00\\x01"));
    console.log(JSON.stringify({ maxBatchBytes, left: elements.list(table, "ips").length, error: [error.name, error.code, error.message] }));
  `;
  const words = ["--user", "--map-root-user", "--net", process.execPath, "--input-type=module", "--eval", script];
  const { maxBatchBytes, left, error } = JSON.parse(execFileSync("unshare", words, { encoding: "utf8" }));
  assert.equal(left, 1);
  const allowed = 2 * Number(readFileSync("/proc/sys/net/core/wmem_max", "utf8"));
  assert.ok(maxBatchBytes > 0 && maxBatchBytes <= allowed, `${maxBatchBytes} of ${allowed}`);
  assert.deepEqual(error.slice(0, 2), ["KernelError", "invalid"]);
  assert.match(error[2], new RegExp(`the maximum is ${maxBatchBytes}.*net\\.core\\.wmem_max`));
});

test("NftElements: changes of two tables are one transaction, which applies whole or not at all", () => {
  const [arp, inet] = [
    { family: "arp", name: "isk-two" },
    { family: "inet", name: "isk-two" },
  ] as const;
  using ns = openNetNs({ name: NAME });
  using nft = openNft(ns);
  for (const table of [arp, inet])
    nft.run(new NftTransaction(table).replaceTable().set("senders", { key: "iface_index . ipv4_addr" }));
  using elements = open();
  const fake = new FakeNftElements();
  for (const table of [arp, inet]) fake.addSet(table, "senders");
  const key = `\x01\0\0\0${IP}`;
  for (const port of [elements, fake]) {
    const keys = (): string[] => [arp, inet].flatMap((table) => port.list(table, "senders").map((one) => one.key));
    const batch = (): ElementBatch => new ElementBatch(arp, { record: true }).add("senders", key).inTable(inet);
    const before = port.generation();
    assert.throws(() => port.commitNow(batch().delete("senders", key)), { code: "not-found" });
    assert.deepEqual([keys(), port.generation()], [[], before]);
    port.commitNow(batch().add("senders", key));
    assert.deepEqual([keys(), port.generation()], [[key, key], before + 1]);
  }
});

test("NftElements: commitNow has written when it returns, also to a table of ARP; the fake refuses what the kernel refuses", () => {
  const arp = { family: "arp", name: "isk-arp" } as const;
  using ns = openNetNs({ name: NAME });
  using nft = openNft(ns);
  nft.run(new NftTransaction(arp).replaceTable().set("senders", { key: "iface_index . ipv4_addr" }));
  using elements = open();
  const fake = new FakeNftElements();
  fake.addSet(arp, "senders");
  const key = `\x01\0\0\0${IP}`;
  for (const port of [elements, fake]) {
    port.commitNow(new ElementBatch(arp, { record: true }).add("senders", key));
    assert.deepEqual(
      port.list(arp, "senders").map((one) => one.key),
      [key],
    );
    const twice = new ElementBatch(arp, { record: true }).delete("senders", key).delete("senders", key);
    assert.throws(() => port.commitNow(twice), { code: "not-found" });
    port.commitNow(new ElementBatch(arp, { record: true }).delete("senders", key));
    assert.deepEqual(port.list(arp, "senders"), []);
  }
});
