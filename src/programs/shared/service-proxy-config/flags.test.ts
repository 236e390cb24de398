import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ConfigError, parseFlags } from "#base/config";
import { gatePairs, nodeNameOf, parseCidrList, parseFeatureGates, serviceProxyFlags, splitList } from "./flags.ts";

test("serviceProxyFlags: kube-proxy's flags by name, with its defaults (docs/spec/service-proxy.md#2.10)", () => {
  const { values } = parseFlags(serviceProxyFlags, []);
  const byName = Object.fromEntries(
    Object.entries(serviceProxyFlags).map(([key, { name }]) => [name, values[key as keyof typeof values]]),
  );
  const expected: Readonly<Record<string, unknown>> = {
    "hostname-override": "",
    "bind-address": "0.0.0.0",
    "healthz-bind-address": "0.0.0.0:10256",
    "metrics-bind-address": "127.0.0.1:10249",
    "bind-address-hard-fail": false,
    "proxy-mode": "nftables",
    "sync-period": 30_000,
    "min-sync-period": 1000,
    "config-sync-period": 900_000,
    "masquerade-bit": 14,
    "masquerade-all": false,
    "nodeport-addresses": "primary",
    "detect-local-mode": "ClusterCIDR",
    "cluster-cidr": "",
    "pod-bridge-interface": "",
    "pod-interface-name-prefix": "",
    "feature-gates": "",
    "conntrack-max-per-core": 32_768,
    "conntrack-min": 131_072,
    "conntrack-tcp-timeout-established": 86_400_000,
    "conntrack-tcp-timeout-close-wait": 3_600_000,
    "conntrack-tcp-be-liberal": false,
    "conntrack-udp-timeout": 0,
    "conntrack-udp-timeout-stream": 0,
    "oom-score-adj": -999,
    profiling: false,
    "init-only": false,
    cleanup: false,
    "table-name": "kube-proxy",
    "startup-health": "strict",
  };
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(byName[name], value, name);
});

test("serviceProxyFlags: values out of range are refused by the flag's name", () => {
  for (const argv of [
    "--masquerade-bit=32",
    "--masquerade-bit=-1",
    "--sync-period=0s",
    "--proxy-mode=ipvs",
    "--oom-score-adj=1001",
    "--v=x",
  ]) {
    const name = argv.slice(0, argv.indexOf("="));
    assert.throws(
      () => parseFlags(serviceProxyFlags, [argv]),
      (error) => error instanceof ConfigError && error.faults.length === 1 && error.message.includes(name),
      argv,
    );
  }
});

test("parseFeatureGates: gates are on by default; unknown ones are reported, not refused", () => {
  assert.deepEqual(parseFeatureGates([]), {
    drainingTerminatingNodes: true,
    allowServiceExternalIPs: true,
    unknown: [],
  });
  assert.deepEqual(parseFeatureGates(gatePairs("KubeProxyDrainingTerminatingNodes=false, Other=true")), {
    drainingTerminatingNodes: false,
    allowServiceExternalIPs: true,
    unknown: ["Other"],
  });
  for (const name of ["constructor", "__proto__", "toString"])
    assert.deepEqual(parseFeatureGates([[name, "true"]]).unknown, [name]);
  for (const text of ["A", "A=b=c", "A=maybe", "=true"])
    assert.throws(() => parseFeatureGates(gatePairs(text)), ConfigError, text);
});

test("nodeNameOf: lower case without blanks, as kubelet names Nodes", () => {
  assert.equal(nodeNameOf(" Node-A "), "node-a");
  assert.throws(() => nodeNameOf("  "), ConfigError);
  for (const name of ["a b", "a,metadata.namespace=b", "../x", "-a", "a.", "a_b", "a".repeat(254)])
    assert.throws(
      () => nodeNameOf(name),
      /--hostname-override: ".*" cannot be a Node's name: a name has letters, digits/,
      name,
    );
  assert.equal(nodeNameOf("a".repeat(253)), "a".repeat(253));
  assert.notEqual(nodeNameOf(""), "");
});

test("splitList, parseCidrList: ignore blanks and empty words, and throw only ConfigError", () => {
  assert.deepEqual(splitList(" a, ,b,"), ["a", "b"]);
  const expected = (read: () => unknown): void => {
    try {
      read();
    } catch (error) {
      assert.ok(error instanceof ConfigError);
    }
  };
  const text = fc.oneof(fc.string(), fc.stringMatching(/^[A-Za-z]{0,4}=?(true|false)?,?[0-9a-f.:/]{0,12}$/));
  fc.assert(
    fc.property(text, (one) => {
      expected(() => parseCidrList("cluster-cidr", splitList(one)));
      expected(() => parseFeatureGates(gatePairs(one)));
      expected(() => nodeNameOf(one));
    }),
  );
});
