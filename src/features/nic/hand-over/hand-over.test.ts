import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { NicStatus } from "#kube/nic";
import { NicError } from "../errors.ts";
import { cloudInitNetwork } from "./cloud-init.ts";
import { formatCniArgs, type HandOver, handOverAnnotations, parseHandOver } from "./cni-args.ts";

const PORT = "a2815656-76f7-46d4-9d11-057063db1a14";
const OTHER = "b2815656-76f7-46d4-9d11-057063db1a14";

test("T-6: CNI_ARGS of a hand-over, with = in JSON and keys of the runtime beside", () => {
  const handOver: HandOver = {
    tenant: "blue",
    vpc: "vpc-1",
    nics: [{ name: "eth0", portID: PORT }, { portID: OTHER }],
  };
  const text = `Tenant=blue;VPC=vpc-1;NICs=[{"name":"eth0","portid":"${PORT}"},{"portid":"${OTHER}"}]`;
  assert.equal(formatCniArgs(handOver), text);
  assert.deepEqual(parseHandOver(text), handOver);
  assert.deepEqual(parseHandOver(`IgnoreUnknown=1;K8S_POD_NAME=a;${text};`), handOver);
  assert.deepEqual(handOverAnnotations(handOver), {
    VPC: "vpc-1",
    NICs: `[{"name":"eth0","portid":"${PORT}"},{"portid":"${OTHER}"}]`,
  });
  assert.deepEqual(parseHandOver(`VPC=demo;NICs=[{"PortID":"${PORT.toUpperCase()}","NAME":"eth0","tag":"a=b=c"}]`), {
    vpc: "demo",
    nics: [{ name: "eth0", portID: PORT }],
  });
  assert.deepEqual(parseHandOver("VPC=a=b;NICs=[{}]"), { vpc: "a=b", nics: [{}] });
  assert.deepEqual(
    [parseHandOver(""), parseHandOver("K8S_POD_NAME=a"), parseHandOver("VPC=v")],
    [undefined, undefined, undefined],
  );
});

test("T-6: what is no hand-over is refused with its cause, and a value with a semicolon is not written", () => {
  const rows: readonly (readonly [string, RegExp])[] = [
    ["NICs=[]", /has NICs without VPC/],
    ["VPC=v;NICs=[[", /NICs of CNI_ARGS: Invalid value: .*neither JSON nor YAML/],
    ["VPC=v;NICs={}", /must be a list of NICs/],
    ['VPC=v;NICs=[{"port":"x"}]', /nics\[0\].port: Unknown field/],
    ['VPC=v;NICs=[{"portid":"x"}]', /nics\[0\].portid: must be a UUID/],
    [`VPC=v;NICs=[{"portid":"${PORT}","name":"lo"}]`, /nics\[0\].name: must be a valid interface name/],
    [`VPC=v;NICs=[{"portid":"${PORT}"},{"portid":"${PORT}"}]`, /has a port twice/],
    [`VPC=v;NICs=[${"{},".repeat(33)}]`, /has 33 NICs: at most 32/],
  ];
  for (const [text, message] of rows) {
    assert.throws(() => parseHandOver(text), { name: "NicError", code: "invalid-hand-over", message }, text);
  }
  assert.throws(() => formatCniArgs({ vpc: "a;b", nics: [] }), {
    message: /VPC is "a;b": a value of CNI_ARGS has no semicolon/,
  });
  assert.throws(() => formatCniArgs({ tenant: "a;b", vpc: "v", nics: [] }), { name: "NicError" });
});

test("T-6: any text is a hand-over, none, or a NicError, and what is written is read again (fuzz)", () => {
  const piece = fc.constantFrom(
    "VPC=",
    "NICs=",
    "Tenant=",
    ";",
    "=",
    "[",
    "]",
    "{",
    "}",
    '"name":',
    '"portid":',
    `"${PORT}"`,
    '"eth0"',
    ",",
    "v",
  );
  const text = fc.oneof(
    fc.string(),
    fc.array(piece, { maxLength: 30 }).map((all) => all.join("")),
  );
  fc.assert(
    fc.property(text, (one) => {
      let handOver: HandOver | undefined;
      try {
        handOver = parseHandOver(one);
      } catch (error) {
        assert.ok(error instanceof NicError, String(error));
      }
      if (handOver !== undefined) assert.deepEqual(parseHandOver(formatCniArgs(handOver)), handOver);
    }),
    { numRuns: 2000 },
  );
});

test("cloud-init: addresses, routes, MTU and name servers by MAC, with one NIC that has the default route", () => {
  const nics: readonly NicStatus[] = [
    {
      name: "eth0",
      state: "Ready",
      mac: "fa:16:3e:00:00:01",
      mtu: 1450,
      ips: [
        { ip: "192.168.0.12", prefixLength: 24, gateway: "192.168.0.1" },
        { ip: "fd00::5", prefixLength: 64, gateway: "fe80::1" },
      ],
      routes: [
        { dst: "10.0.0.0/8", via: "192.168.0.254" },
        { dst: "172.16.0.0/12", via: "203.0.113.1" },
      ],
      dns: { nameservers: ["192.168.0.2"], search: ["example.com"] },
    },
    {
      name: "data",
      state: "InProgress",
      mac: "fa:16:3e:00:00:02",
      ips: [{ ip: "10.1.0.5", prefixLength: 16, gateway: "10.1.0.1" }],
      routes: [{ dst: "0.0.0.0/0", via: "10.1.0.9" }],
      dns: { nameservers: [], search: [] },
    },
    { name: "eth2", state: "Ready", mac: "fa:16:3e:00:00:03", ips: [{ ip: "10.2.0.5", prefixLength: 16 }] },
  ];
  const network = cloudInitNetwork(nics);
  assert.deepEqual(network, {
    version: 2,
    ethernets: {
      eth0: {
        match: { macaddress: "fa:16:3e:00:00:01" },
        "set-name": "eth0",
        mtu: 1450,
        dhcp4: false,
        dhcp6: false,
        addresses: ["192.168.0.12/24", "fd00::5/64"],
        routes: [
          { to: "0.0.0.0/0", via: "192.168.0.1", metric: 100 },
          { to: "::/0", via: "fe80::1", metric: 100 },
          { to: "10.0.0.0/8", via: "192.168.0.254" },
          { to: "172.16.0.0/12", via: "203.0.113.1", "on-link": true },
        ],
        nameservers: { addresses: ["192.168.0.2"], search: ["example.com"] },
      },
      data: {
        match: { macaddress: "fa:16:3e:00:00:02" },
        "set-name": "data",
        dhcp4: false,
        dhcp6: false,
        addresses: ["10.1.0.5/16"],
        routes: [{ to: "0.0.0.0/0", via: "10.1.0.9", metric: 101 }],
      },
      eth2: {
        match: { macaddress: "fa:16:3e:00:00:03" },
        "set-name": "eth2",
        dhcp4: false,
        dhcp6: false,
        addresses: ["10.2.0.5/16"],
      },
    },
  });
  const chosen = cloudInitNetwork(nics, { defaultRoute: "data" }).ethernets;
  assert.deepEqual([chosen["data"]?.routes?.[0]?.metric, chosen["eth0"]?.routes?.[0]?.metric], [100, 103]);
});

test("cloud-init: a NIC without MAC or address is not ready, and the message says its state", () => {
  const nic: NicStatus = { name: "eth0", state: "Failed", reason: "IpInUse" };
  assert.throws(() => cloudInitNetwork([nic]), {
    name: "NicError",
    code: "not-ready",
    message: "NIC eth0 has no MAC yet: it is Failed (IpInUse)",
  });
  assert.throws(() => cloudInitNetwork([{ ...nic, mac: "fa:16:3e:00:00:01" }]), { message: /has no address yet/ });
});
