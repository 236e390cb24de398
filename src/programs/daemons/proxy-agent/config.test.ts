import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { assertTimeout, defaultsOf, faultsOf } from "../../shared/tunnel/testing/command-lines.ts";
import { type AgentConfig, agentConfig } from "./config.ts";
import { agentFlags } from "./flags.ts";

const GATE = "--feature-gates=EnableClusterToMasterTraffic=true";
const BIND = "--bind-address=10.255.255.1";
const TARGET = "--target=6443:localhost:6443";

function parse(...argv: string[]): AgentConfig {
  return agentConfig(parseFlags(agentFlags, argv).values);
}

test("agentFlags: every flag of Konnectivity has its default", () => {
  const byName = defaultsOf(agentFlags);
  const expected = {
    "agent-cert": "",
    "agent-key": "",
    "ca-cert": "",
    "proxy-server-host": "127.0.0.1",
    "proxy-server-port": 8091,
    "alpn-proto": [],
    "health-server-host": "",
    "health-server-port": 8093,
    "admin-bind-address": "127.0.0.1",
    "admin-server-port": 8094,
    "enable-profiling": false,
    "enable-contention-profiling": false,
    "agent-id": "",
    "agent-identifiers": "",
    "sync-interval": 1000,
    "probe-interval": 1000,
    "sync-interval-cap": 10_000,
    "keepalive-time": 3_600_000,
    "service-account-token-path": "",
    "warn-on-channel-limit": false,
    "sync-forever": false,
    "xfr-channel-size": 150,
    "count-server-leases": false,
    "lease-namespace": "kube-system",
    "lease-label-selector": "k8s-app=konnectivity-server",
    "server-count-source": "default",
    kubeconfig: "",
    "kube-api-content-type": "application/vnd.kubernetes.protobuf",
    "connect-timeout": 20_000,
    "dial-timeout": 5000,
    "drain-timeout": 30_000,
    "reconnect-jitter": 200,
    "bind-interface": "knode0",
    "manage-bind-interface": true,
    "keep-bind-interface": false,
  };
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(byName[name], value, name);
});

test("agentConfig: servers are the list, else host and port", () => {
  assert.deepEqual(parse().servers, [{ host: "127.0.0.1", port: 8091 }]);
  assert.deepEqual(parse("--proxy-server-host=::1").servers, [{ host: "::1", port: 8091 }]);
  assert.deepEqual(parse("--proxy-server-host=[::1]", "--proxy-server-port=1").servers, [{ host: "::1", port: 1 }]);
  const { servers } = parse("--proxy-server=a.example:1", "--proxy-server=[2001:db8::1]:2");
  assert.deepEqual(servers, [
    { host: "a.example", port: 1 },
    { host: "2001:db8::1", port: 2 },
  ]);
  assert.equal(parse("--lease-label=old=name", "--count-server-leases").leaseSelector, "old=name");
});

test("agentConfig: each fault names its flag", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-agent-config-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const cert = join(folder, "a.crt");
  writeFileSync(cert, "");
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [[`--agent-cert=${cert}`], /^--agent-key: is needed with --agent-cert$/],
    [[`--agent-key=${cert}`], /^--agent-cert: is needed with --agent-key$/],
    [["--ca-cert=/nowhere"], /^--ca-cert: cannot read/],
    [["--service-account-token-path=/nowhere"], /^--service-account-token-path: cannot read/],
    [["--proxy-server-port=0"], /^--proxy-server-port: 0 is not a port/],
    [["--health-server-port=0"], /^--health-server-port: 0 is not a port/],
    [["--admin-server-port=0"], /^--admin-server-port: 0 is not a port/],
    [["--proxy-server-host=a b"], /^--proxy-server-host: "a b" is neither a name nor an address$/],
    [["--xfr-channel-size=0"], /^--xfr-channel-size: 0 is not above 0$/],
    [["--sync-interval=11s"], /^--sync-interval: 11000 ms is longer than --sync-interval-cap, 10000 ms$/],
    [["--sync-interval=0s"], /^--sync-interval: must be above 0$/],
    [["--enable-contention-profiling"], /^--enable-contention-profiling: needs --enable-profiling$/],
    [["--agent-id=a b"], /^--agent-id: "a b" is not visible ASCII/],
    [[`--agent-id=${"x".repeat(257)}`], /^--agent-id: /],
    [["--agent-identifiers=ipv5=1"], /^--agent-identifiers: "ipv5" is not an agent identifier/],
    [["--agent-identifiers=default-route=yes"], /^--agent-identifiers: .*neither true nor false/],
    [
      ["--agent-identifiers=ipv4=node1"],
      /^--agent-identifiers: ipv4=node1: "node1" is not valid; expected an IPv4 address, such as 192/,
    ],
    [["--agent-identifiers=ipv4=::1"], /^--agent-identifiers: ipv4=::1: "::1" is not valid; expected an IPv4 address/],
    [
      ["--agent-identifiers=host=a&ipv6=1.2.3.4"],
      /^--agent-identifiers: ipv6=1.2.3.4: .* is not valid; expected an IPv6 address/,
    ],
    [
      ["--agent-identifiers=cidr=10.0.0.0"],
      /^--agent-identifiers: cidr=10.0.0.0: .* is not valid; expected a network, such as/,
    ],
    [
      ["--agent-identifiers=host=a+b"],
      /^--agent-identifiers: host=a b: "a b" is not valid; expected a name or an address, such as node1$/,
    ],
    [["--tls-server-name=a b"], /^--tls-server-name: "a b" is neither a name nor an address: an example is/],
    [[TARGET], /^--target: needs --feature-gates=EnableClusterToMasterTraffic=true$/],
    [[BIND], /^--bind-address: needs --feature-gates=/],
    [[GATE, TARGET, "--target=6443:other:6443", BIND], /^--target: "6443:other:6443": local port 6443 is given twice$/],
    [[GATE, TARGET, "--bind-address=127.0.0.1"], /^--bind-address: "127\.0\.0\.1" is a loopback address/],
    [[GATE, TARGET, "--bind-address=fe80::1"], /^--bind-address: "fe80::1" is link-local/],
    [[GATE, TARGET, "--bind-address=0.0.0.0"], /^--bind-address: "0\.0\.0\.0" is unspecified/],
    [[GATE, TARGET, "--bind-address=x"], /^--bind-address: "x" is not an IP address/],
    [
      [GATE, TARGET, BIND, "--bind-interface=much-too-long-a-name"],
      /^--bind-interface: "much-too-long-a-name" cannot be the name/,
    ],
  ];
  for (const [argv, why] of cases) {
    const faults = faultsOf(() => parse(...argv));
    assert.equal(faults.length, 1, `${argv.join(" ")}: ${faults.join("; ")}`);
    assert.match(faults[0] ?? "", why);
  }
});

test("agentFlags: values are refused one by one, with their flag", () => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ["--target=6443:2001:db8::1:6443", /--target: "6443:2001:db8::1:6443" is not local_port:dst_host:dst_port/],
    ["--target=0:a:1", /--target: "0:a:1" is not/],
    ["--target=6443:[fe80::1%eth0]:6443", /--target: /],
    ["--target=6443: a:1", /--target: "6443: a:1" is not/],
    ["--allowed-source=10.0.0.1", /--allowed-source: "10\.0\.0\.1" is not a CIDR/],
    ["--proxy-server=a", /--proxy-server: "a" is not HOST:PORT/],
    ["--forward-allowed-destination=10.0.0.1", /--forward-allowed-destination: "10\.0\.0\.1" is not CIDR/],
    ["--server-count-source=min", /--server-count-source: "min" is not one of/],
  ];
  for (const [flag, why] of cases) assert.throws(() => parseFlags(agentFlags, [flag]), why, flag);
  assert.equal(parseFlags(agentFlags, ["--server-count-source="]).values.serverCountSource, "");
  assert.deepEqual(parseFlags(agentFlags, ["--alpn-proto=a,b", "--alpn-proto", "c"]).values.alpnProto, ["a", "b", "c"]);
});

test("agentConfig: the reverse direction, dual stack; an address that is not private causes a warning", () => {
  const forwardOnly = parse(GATE, TARGET);
  assert.equal(forwardOnly.reverse, undefined);
  assert.match(forwardOnly.warnings.join(), /^--target has no effect without --bind-address: /);
  const { reverse, warnings } = parse(GATE, TARGET, `${BIND},fd00::1`, "--bind-address=203.0.113.1");
  assert.deepEqual(reverse?.bindAddresses.map(String), ["10.255.255.1", "fd00::1", "203.0.113.1"]);
  assert.deepEqual(
    reverse?.targets.map(({ localPort, address }) => [localPort, address]),
    [[6443, "localhost:6443"]],
  );
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /^--bind-address: 203\.0\.113\.1 is not private/);
  assert.equal(parse(GATE).reverse, undefined);
});

test("agentFlags: a timeout that is too long for a timer, or 0, is refused with its flag", () => {
  for (const name of ["connect-timeout", "dial-timeout"]) assertTimeout(agentFlags, name);
  assert.throws(() => parseFlags(agentFlags, ["--probe-interval=0s"]), { name: "ConfigError" });
  // These go into timers that are set again and again.
  assert.equal(parseFlags(agentFlags, ["--keepalive-time=1000h"]).values.keepaliveTime, 3_600_000_000);
});
