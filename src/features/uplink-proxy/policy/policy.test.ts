import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { POD_PORTS } from "#base/uplink-model";
import { parseHostPort } from "#wire/http-connect";
import { hostListener, settingsOf, snapshotOf, uplink } from "../testing/proxy-fixtures.ts";
import {
  addressDestination,
  ClientLimits,
  checkToken,
  destinationOf,
  isAllowedPort,
  type Judgement,
  judge,
} from "./index.ts";

const POD_ADDRESS = "169.254.100.1";
const pod = hostListener(5443, {
  name: "pods",
  role: "pod",
  address: IpAddress.parse(POD_ADDRESS),
  allowedPorts: POD_PORTS,
});
const host = hostListener(5443);
const snapshot = snapshotOf([uplink("eth0", { sources: ["192.0.2.10", "2001:db8::10"] })], {
  localAddresses: ["127.0.0.1", "192.0.2.10", "10.244.244.2", "172.31.0.7", "2001:db8::10"].map((text) =>
    IpAddress.parse(text),
  ),
  bypass: ["10.42.0.0/16", "10.43.0.0/16", "10.244.244.0/24", "fd00:42::/56"].map((text) => Cidr.parse(text)),
});
const settings = settingsOf({
  allowLoopback: false,
  listeners: [host, pod],
  cluster: { nodeIP: IpAddress.parse("10.244.244.2"), prefixLength: 24 },
  routing: {
    ...settingsOf().routing,
    podCIDRs: ["10.42.0.0/16", "fd00:42::/56"].map((text) => Cidr.parse(text)),
    serviceCIDRs: ["10.43.0.0/16"].map((text) => Cidr.parse(text)),
  },
});

function verdict(listener: typeof pod, texts: readonly string[], port = 443): Judgement {
  return judge(
    listener,
    port,
    texts.map((text) => IpAddress.parse(text)),
    { settings, snapshot },
  );
}

/** Ways of writing an IPv4 destination so that a naive check does not see it. */
function disguises(text: string): string[] {
  const bytes = Buffer.from(IpAddress.parse(text).toBytes());
  const hex = (at: number): string => bytes.readUInt16BE(at).toString(16);
  const low = `${hex(0)}:${hex(2)}`;
  return [
    `::ffff:${low}`,
    `::${low}`,
    `64:ff9b::${low}`,
    `2002:${low}::1`,
    `::ffff:0:${low}`,
    `2001:db8:9::5efe:${low}`,
  ];
}

test("judge: no pod gets to the node, its cluster, its link, metadata or nowhere, however it is written", () => {
  const denied = [
    ...["127.0.0.1", "127.8.9.10", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", POD_ADDRESS],
    ...["224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1"],
    ...["10.42.3.4", "10.43.0.1", "192.0.2.10", "10.244.244.2", "172.31.0.7"],
  ];
  for (const text of denied) {
    assert.equal(verdict(pod, [text]), "denied", text);
    for (const disguise of disguises(text)) assert.equal(verdict(pod, [disguise]), "denied", disguise);
    assert.equal(verdict(pod, ["203.0.113.80", text]), "denied", `one of two is ${text}`);
  }
  for (const text of ["168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"]) {
    assert.equal(verdict(pod, [text]), "denied", text);
  }
  const six = [
    "::1",
    "::",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::10",
    "fd00:42::7",
    "2001:0:1::1",
    "64:ff9b:1::1",
  ];
  for (const text of six) assert.equal(verdict(pod, [text]), "denied", text);
});

test("judge: pods get to the internet and to registries on premises, at the ports that are allowed", () => {
  for (const text of ["203.0.113.80", "10.0.0.5", "172.16.0.5", "192.168.1.5", "2606:4700::1"]) {
    assert.equal(verdict(pod, [text]), "uplink", text);
  }
  for (const port of [443, 5000, 8443]) assert.equal(isAllowedPort(pod, port), true);
  for (const port of [22, 80, 6443, 5443, 10250, 65535]) {
    assert.equal(isAllowedPort(pod, port), false);
    assert.equal(verdict(pod, ["203.0.113.80"], port), "denied", `${port}`);
  }
});

test("judge: other nodes are reached, but not their control plane, whatever ports are allowed", () => {
  const open = { ...pod, allowedPorts: [443, 6443, 9345, 10250, 2379, 2380] };
  assert.equal(verdict(open, ["10.244.244.3"], 443), "direct");
  for (const port of [6443, 9345, 10250, 2379, 2380]) {
    assert.equal(verdict(open, ["10.244.244.3"], port), "denied", `${port}`);
    for (const disguise of disguises("10.244.244.3")) assert.equal(verdict(open, [disguise], port), "denied", disguise);
    assert.equal(verdict(open, ["203.0.113.80"], port), "uplink", `${port}`);
  }
});

test("judge: the host reaches its own addresses directly, and never our listeners", () => {
  for (const text of [
    "10.42.1.1",
    "10.43.0.1",
    "10.244.244.9",
    "192.0.2.10",
    "169.254.169.254",
    "fe80::1",
    "::ffff:10.43.0.1",
  ]) {
    assert.equal(verdict(host, [text]), "direct", text);
  }
  assert.equal(verdict(host, ["203.0.113.80"]), "uplink");
  assert.equal(verdict(host, ["203.0.113.80", "10.43.0.1"]), "uplink");
  for (const text of ["127.0.0.1", "127.1.2.3", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"]) {
    assert.equal(verdict(host, [text], 80), "denied", text);
  }
  const allowing = { settings: { ...settings, allowLoopback: true }, snapshot };
  const at = (text: string, port: number): Judgement => judge(host, port, [IpAddress.parse(text)], allowing);
  assert.equal(at("127.0.0.1", 80), "direct");
  assert.equal(at("127.0.0.1", 5443), "denied");
  assert.equal(at("::ffff:127.0.0.1", 5443), "denied");
  assert.equal(at(POD_ADDRESS, 5443), "denied");
});

test("judge: nothing that a pod may reach lies in a forbidden range, in any of its forms (property)", () => {
  const forbidden = ["127.0.0.0/8", "0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "10.42.0.0/16", "10.43.0.0/16"].map(
    (text) => Cidr.parse(text),
  );
  const near = fc
    .constantFrom(...forbidden)
    .chain((cidr) => fc.bigInt({ min: 0n, max: cidr.size - 1n }).map((offset) => cidr.at(offset)));
  fc.assert(
    fc.property(
      fc.oneof(
        near,
        fc.nat(0xffff_ffff).map((value) => IpAddress.fromValue(4, BigInt(value))),
      ),
      (four) => {
        const isForbidden = forbidden.some((cidr) => cidr.contains(four));
        for (const form of [four.toString(), ...disguises(four.toString())]) {
          const judged = verdict(pod, [form]);
          if (isForbidden) assert.equal(judged, "denied", form);
        }
      },
    ),
  );
});

test("destinationOf: one spelling for each destination; numbers that resolvers would take for addresses are none", () => {
  const of = (text: string): string | undefined => {
    const parsed = parseHostPort(text);
    return parsed === undefined ? undefined : destinationOf(parsed).text;
  };
  assert.equal(of("Registry.Example.:443"), "registry.example:443");
  assert.equal(of("[2001:DB8:0:0::1]:443"), "[2001:db8::1]:443");
  assert.equal(of("[::ffff:192.0.2.1]:443"), "192.0.2.1:443");
  assert.equal(of("[::ffff:c000:201]:0443"), "192.0.2.1:443");
  assert.equal(addressDestination(IpAddress.parse("::ffff:10.0.0.1"), 80).text, "10.0.0.1:80");
  for (const text of [
    "2130706433:443",
    "0x7f.1:443",
    "127.1:443",
    "0177.0.0.1:443",
    "[fe80::1%eth0]:443",
    ":443",
    "a:0",
    "a:65536",
    "a:",
    "a",
    "u@a:1",
    "a b:1",
    "a:+1",
  ]) {
    assert.equal(of(text), undefined, text);
  }
});

test("checkToken: the password alone counts, any of those accepted now, and nothing without one", () => {
  const basic = (text: string): string => `Basic ${Buffer.from(text).toString("base64")}`;
  const tokens = ["aa".repeat(32), "bb".repeat(32)];
  assert.equal(checkToken([basic(`cdi:${tokens[0]}`)], tokens), "ok");
  assert.equal(checkToken([basic(`:${tokens[1]}`)], tokens), "ok");
  assert.equal(checkToken([`basic   ${Buffer.from(`x:${tokens[0]}`).toString("base64")}`], tokens), "ok");
  const wrong = [
    [],
    [""],
    [basic(tokens[0] ?? "")],
    [basic("cdi:")],
    [basic(`cdi:${tokens[0]}x`)],
    [`Bearer ${tokens[0]}`],
    ["Basic !!!"],
    [basic(`cdi:${tokens[0]}`), basic(`cdi:${tokens[0]}`)],
    [`Basic ${"A".repeat(5000)}`],
  ];
  for (const values of wrong) assert.equal(checkToken(values, tokens), "denied", JSON.stringify(values).slice(0, 60));
  assert.equal(checkToken([basic("cdi:")], undefined), "not-loaded");
  assert.equal(checkToken([basic("cdi:")], []), "not-loaded");
  fc.assert(fc.property(fc.array(fc.string(), { maxLength: 2 }), (values) => checkToken(values, tokens) === "denied"));
});

test("ClientLimits: 32 tunnels of a client at once and 20 new ones a second; others are not held up", async () => {
  const clock = new FakeClock();
  const clients = new ClientLimits(clock, () => settings.limits);
  const take = (address: string, times: number): number =>
    Array.from({ length: times }, () => clients.tryTake(address)).filter((taken) => taken).length;
  assert.equal(take("10.42.0.5", 40), 20);
  assert.equal(take("10.42.0.6", 1), 1);
  await clock.advance(1000);
  assert.equal(take("10.42.0.5", 40), 12);
  await clock.advance(1000);
  assert.equal(take("10.42.0.5", 1), 0);
  clients.giveBack("10.42.0.5");
  assert.equal(take("10.42.0.5", 1), 1);
});

test("ClientLimits: a flood of addresses is bounded, and those with tunnels stay", () => {
  const clients = new ClientLimits(new FakeClock(), () => settings.limits);
  assert.equal(clients.tryTake("10.42.0.5"), true);
  for (let at = 0; at < 6000; at += 1) {
    const address = `10.42.${at >> 8}.${at & 255}x`;
    if (clients.tryTake(address)) clients.giveBack(address);
  }
  assert.ok(clients.size <= 4096);
  for (let at = 0; at < 4095; at += 1) clients.tryTake(`held ${at}`);
  assert.equal(clients.tryTake("one more"), false);
});
