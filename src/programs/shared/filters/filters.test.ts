import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { iptablesFilter } from "./iptables.ts";
import { follow, type PacketFilter } from "./model.ts";
import { nftFilters, readChains } from "./nft-json.ts";

const ip = IpAddress.parse;
const FROM = { family: 4, iif: "veth0a", oif: "eth0", source: ip("10.1.0.2"), destination: ip("192.0.2.1") } as const;
const TO = { family: 4, iif: "eth0", oif: "veth0a", source: ip("192.0.2.1"), destination: ip("10.1.0.2") } as const;
const FROM6 = { ...FROM, family: 6, source: ip("fd01::2"), destination: ip("2001:db8::1") } as const;

const outcomes = (filter: PacketFilter | undefined): string =>
  filter === undefined ? "none" : [FROM, TO].map((packet) => follow(filter, packet).kind).join(" ");
const iptables = (...lines: readonly string[]) =>
  iptablesFilter(lines.join("\n"), { family: 4, variant: "nf_tables", hook: "forward" });
const forwarding = (policy: string, ...rules: readonly string[]) =>
  iptables(
    `-P FORWARD ${policy}`,
    "-N SUB",
    ...rules.map((rule) => (rule.startsWith("-A") ? rule : `-A FORWARD ${rule}`)),
  );

test("iptablesFilter: addresses, links, protocols and states decide; jumps return; what cannot be judged may accept", () => {
  const drop = '-m comment --comment "all -j ACCEPT \\"quoted\\"" -j DROP';
  for (const [filter, expected] of [
    [forwarding("ACCEPT"), "accepted accepted"],
    [forwarding("DROP"), "dropped dropped"],
    [forwarding("ACCEPT", "-j REJECT --reject-with icmp-port-unreachable"), "dropped dropped"],
    [forwarding("ACCEPT", drop), "dropped dropped"],
    [
      forwarding("DROP", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-p icmp -j ACCEPT"),
      "dropped dropped",
    ],
    [forwarding("DROP", "-s 10.1.0.0/24 -j ACCEPT"), "accepted dropped"],
    [forwarding("DROP", "-d 10.1.0.0/24 -p tcp -j ACCEPT", "-i veth+ -j ACCEPT"), "accepted accepted"],
    [forwarding("DROP", "! -i eth0 -j ACCEPT", "! -s 10.0.0.0/8 -o veth+ -j ACCEPT"), "accepted accepted"],
    [forwarding("DROP", "-s 10.1.0.0/24 -j LOG --log-prefix x", "-p tcp -m tcp --dport 80 -j ACCEPT"), "maybe maybe"],
    [forwarding("DROP", "-m set --match-set pods src -j ACCEPT", "-i docker0 -j ACCEPT"), "maybe maybe"],
    [forwarding("ACCEPT", "-m mark --mark 0x1/0x1 -j DROP"), "accepted accepted"],
    [forwarding("DROP", "-j SUB", "-A SUB -i veth+ -j RETURN", "-A SUB -j ACCEPT"), "dropped accepted"],
    [forwarding("DROP", "-g SUB", "-j ACCEPT", "-A SUB -i docker0 -j ACCEPT"), "dropped dropped"],
    [forwarding("DROP", "-j SUB", "-A SUB -j SUB"), "maybe maybe"],
    [iptables("-P INPUT DROP"), "none"],
  ] as const)
    assert.equal(outcomes(filter), expected);
  const filter = forwarding("DROP", "-s 10.9.0.0/16 -j ACCEPT") ?? assert.fail();
  assert.equal(follow(filter, FROM).by, "its policy drop");
  assert.equal(
    filter.allow({ direction: "to", prefix: "10.1.0.0/27", family: 4 }),
    "iptables -I FORWARD -d 10.1.0.0/27 -j ACCEPT",
  );
});

const nft = (policy: "accept" | "drop", rules: readonly object[], more: readonly object[] = []) => {
  const at = { family: "inet", table: "filter" };
  const [filter] = nftFilters(
    {
      nftables: [
        { chain: { ...at, name: "forward", hook: "forward", policy } },
        { chain: { ...at, name: "sub" } },
        { chain: { ...at, name: "input", hook: "input", policy: "drop" } },
        ...rules.map((expr, handle) => ({ rule: { ...at, chain: "forward", handle, expr } })),
        ...more.map((expr, handle) => ({ rule: { ...at, chain: "sub", handle, expr } })),
      ],
    },
    "forward",
  );
  return filter ?? assert.fail();
};
const match = (left: object, right: unknown, op = "==") => ({ match: { op, left, right } });
const meta = (key: string) => ({ meta: { key } });
const payload = (protocol: string, field: string) => ({ payload: { protocol, field } });
const accept = { accept: null };

test("nftFilters: the statements of base chains at the hook forward, their sets, and what cannot be judged", () => {
  const state = { ct: { key: "state" } };
  for (const [name, filter, expected] of [
    ["policy", nft("drop", []), "dropped dropped"],
    ["states", nft("drop", [[match(state, ["established", "related"], "in"), accept]]), "dropped dropped"],
    ["new", nft("drop", [[match(state, { set: ["new", "related"] }), accept]]), "accepted accepted"],
    ["last rule", nft("accept", [[{ counter: {} }, { reject: { type: "icmpx" } }]]), "dropped dropped"],
    [
      "prefix",
      nft("drop", [[match(payload("ip", "saddr"), { prefix: { addr: "10.1.0.0", len: 16 } }), accept]]),
      "accepted dropped",
    ],
    [
      "set with a range",
      nft("drop", [
        [match(payload("ip", "daddr"), { set: [{ range: ["10.1.0.0", "10.1.0.9"] }, "10.2.0.1"] }), accept],
      ]),
      "dropped accepted",
    ],
    ["named set", nft("drop", [[match(payload("ip", "saddr"), "@pods"), accept]]), "maybe maybe"],
    [
      "links",
      nft("drop", [
        [match(meta("iifname"), "veth*"), accept],
        [match(meta("oifname"), "eth0", "!="), accept],
      ]),
      "accepted accepted",
    ],
    ["other family", nft("drop", [[match(payload("ip6", "saddr"), "fd01::2"), accept]]), "dropped dropped"],
    [
      "other protocol",
      nft("drop", [
        [match(payload("udp", "dport"), 53), accept],
        [match(meta("l4proto"), "icmp"), accept],
      ]),
      "dropped dropped",
    ],
    ["port", nft("drop", [[match(payload("tcp", "dport"), 80), accept]]), "maybe maybe"],
    ["comment", nft("drop", [[{ xt: { type: "match", name: "comment" } }, accept]]), "accepted accepted"],
    ["xt", nft("drop", [[{ xt: { type: "match", name: "x" } }, accept]]), "maybe maybe"],
    ["vmap", nft("drop", [[{ vmap: { key: meta("iifname"), data: {} } }]]), "maybe maybe"],
    [
      "jump",
      nft("drop", [[{ jump: { target: "sub" } }]], [[match(meta("iifname"), "eth0"), { return: null }], [accept]]),
      "accepted dropped",
    ],
    ["goto", nft("drop", [[{ goto: { target: "sub" } }], [accept]]), "dropped dropped"],
  ] as const)
    assert.equal(outcomes(filter), expected, name);
  assert.equal(follow(nft("drop", [[match(payload("ip6", "saddr"), "fd01::2"), accept]]), FROM6).kind, "accepted");
  assert.equal(
    nft("drop", []).allow({ direction: "from", prefix: "fd01::/64", family: 6 }),
    "nft insert rule inet filter forward ip6 saddr fd01::/64 accept",
  );
});

test("iptablesFilter, nftFilters: packets to a port of the node, at the hook input", () => {
  const toPort = { family: 4, iif: "eth0", source: ip("192.0.2.1"), port: 10_256 } as const;
  const input = (policy: string, ...rules: readonly string[]): PacketFilter =>
    iptablesFilter([`-P INPUT ${policy}`, ...rules.map((rule) => `-A INPUT ${rule}`)].join("\n"), {
      ...{ family: 4, variant: "nf_tables", hook: "input" },
    }) ?? assert.fail();
  const at = { family: "inet", table: "filter" };
  const native = (...rules: readonly object[]): PacketFilter =>
    nftFilters(
      {
        nftables: [
          { chain: { ...at, name: "input", hook: "input", policy: "drop" } },
          ...rules.map((expr, handle) => ({ rule: { ...at, chain: "input", handle, expr } })),
        ],
      },
      "input",
    )[0] ?? assert.fail();
  for (const [filter, expected] of [
    [input("ACCEPT"), "accepted"],
    [input("DROP"), "dropped"],
    [input("DROP", "-i lo -j ACCEPT", "-p udp --dport 10256 -j ACCEPT", "-o eth0 -j ACCEPT"), "dropped"],
    [input("DROP", "-p tcp -m tcp --dport 22 -j ACCEPT"), "dropped"],
    [input("DROP", "-p tcp -m tcp --dport 10256 -j ACCEPT"), "accepted"],
    [input("DROP", "-p tcp -m multiport --dports 22,10000:10300 -j ACCEPT"), "accepted"],
    [input("DROP", "-p tcp -m multiport --dports 22,https -j ACCEPT"), "maybe"],
    [input("DROP", "-d 203.0.113.5/32 -p tcp -j ACCEPT"), "maybe"],
    [input("ACCEPT", "-p tcp ! --dport 22 -j DROP"), "dropped"],
    [native(), "dropped"],
    [native([match(payload("tcp", "dport"), 22), accept]), "dropped"],
    [native([match(payload("tcp", "dport"), { set: [22, { range: [10_000, 10_300] }] }), accept]), "accepted"],
    [native([match(payload("th", "dport"), 10_256), accept]), "accepted"],
    [native([match(payload("tcp", "dport"), "@open"), accept]), "maybe"],
    [native([match(payload("ip", "daddr"), "203.0.113.5"), accept]), "maybe"],
  ] as const)
    assert.equal(follow(filter, toPort).kind, expected, filter.name);
  assert.equal(input("DROP").allow({ port: 10_256 }), "iptables -I INPUT -p tcp --dport 10256 -j ACCEPT");
  assert.equal(native().allow({ port: 10_256 }), "nft insert rule inet filter input tcp dport 10256 accept");
});

test("iptablesFilter, nftFilters, follow: no text and no value makes them throw, and their work is bounded", () => {
  const words = fc.constantFrom(
    "-A",
    "-P",
    "-N",
    "FORWARD",
    "SUB",
    "-j",
    "-g",
    "!",
    "-s",
    "10.0.0.0/8",
    "-i",
    "veth+",
    "ACCEPT",
    "DROP",
    '"',
    "\\",
    "\n",
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(words, fc.string())), (parts) => {
      const filter = iptablesFilter(`-P FORWARD DROP\n${parts.join(" ")}`, {
        family: 4,
        variant: "x",
        hook: "forward",
      });
      if (filter !== undefined) assert.ok(["accepted", "dropped", "maybe"].includes(follow(filter, FROM).kind));
    }),
  );
  fc.assert(
    fc.property(fc.jsonValue(), fc.array(fc.jsonValue()), (value, rules) => {
      nftFilters(value, "forward");
      const filter = nft("drop", rules.map((rule) => [match({ meta: rule }, rule), rule]) as never);
      follow(filter, FROM);
    }),
  );
  const many = forwarding("DROP", ...Array.from({ length: 60_000 }, () => "-j SUB"), "-A SUB -j SUB") ?? assert.fail();
  assert.equal(follow(many, FROM).kind, "maybe");
});

test("readChains: reads the chains that forwarded packets may meet and no other, each once", () => {
  const at = { family: "inet", table: "t" };
  const rules: Readonly<Record<string, readonly object[]>> = {
    forward: [{ jump: { target: "a" } }, { vmap: { key: {}, data: { set: [["x", { goto: { target: "b" } }]] } } }],
    a: [{ jump: { target: "b" } }, { goto: { target: "forward" } }, { jump: { target: "no name; flush ruleset" } }],
    b: [],
  };
  const read: string[] = [];
  const ruleset = readChains(
    {
      chains: () => ({
        nftables: [
          { chain: { ...at, name: "forward", hook: "forward", policy: "drop" } },
          { chain: { ...at, name: "services" } },
          { chain: { ...at, family: "bridge", name: "forward", hook: "forward" } },
          { chain: { ...at, name: "bad name", hook: "forward" } },
        ],
      }),
      chain: ({ family, name: table }, name) => {
        read.push(`${family} ${table} ${name}`);
        const chain = name === "forward" ? { ...at, name, hook: "forward", policy: "drop" } : { ...at, name };
        return {
          nftables: [{ chain }, ...(rules[name] ?? []).map((expr) => ({ rule: { ...at, chain: name, expr: [expr] } }))],
        };
      },
    },
    "forward",
  );
  assert.deepEqual(read, ["inet t forward", "inet t a", "inet t b"]);
  assert.equal(nftFilters(ruleset, "forward").length, 1);
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      readChains({ chains: () => value, chain: () => value }, "forward");
    }),
  );
});
