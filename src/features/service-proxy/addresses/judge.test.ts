import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import type { AddressClaim, ClusterFacts } from "../plan/index.ts";
import { type AddressMode, HOST_PORTS, type HostFacts, judgeAddress, parsePortRanges } from "./judge.ts";

const HOST: HostFacts = {
  mode: "guarded",
  ownNode: [IpAddress.parse("198.51.100.1")],
  host: new Set(["198.51.100.1", "198.51.100.2", "2001:db8::2"]),
  otherNodes: new Map([["198.51.100.9", "node-b"]]),
  podRanges: ["10.1.0.0/16", "fd10::/48"].map((text) => Cidr.parse(text)),
  serviceCIDRs: [Cidr.parse("10.96.0.0/12")],
  hostPorts: HOST_PORTS,
  apiServer: { addresses: new Set(["203.0.113.1"]), port: 443 },
};

/** In the cluster: a cluster IP, an endpoint of another namespace at an address outside, one on a node, and the API servers' port 7443. */
const CLUSTER: ClusterFacts = {
  isClusterIP: (address) => String(address) === "10.96.0.10",
  otherEndpoint: (address, notOf, at) => {
    const [namespace, port] =
      { "203.0.113.50": ["db", 5432], "198.51.100.2": ["metrics", 9200] }[String(address)] ?? [];
    if (namespace === notOf || (at !== undefined && (at.protocol !== "TCP" || at.port !== port))) return undefined;
    return namespace as string | undefined;
  },
  nodePortOf: (protocol, port, notOf) =>
    protocol === "TCP" && port === 30_080 && notOf !== "shop/other" ? "shop/other" : undefined,
  apiServerPorts: () => new Set([7443]),
};

function claim(address: string, port = 80, namespace = "shop", isLoadBalancer = false): AddressClaim {
  const parsed = IpAddress.parse(address);
  const rest = { service: `${namespace}/web`, key: "key", frontEnd: `${address}:${port}/TCP` };
  return { ...rest, namespace, address: parsed, protocol: "TCP", port, isLoadBalancer };
}

const said = (mode: AddressMode, ...args: Parameters<typeof claim>): string => {
  const judgement = judgeAddress(claim(...args), { ...HOST, mode }, CLUSTER);
  return judgement.kind === "refused" ? judgement.owner : judgement.kind;
};

test("judgeAddress: guarded gives addresses of nodes for ports that the host does not keep, and nothing that is somebody else's", () => {
  const rows: readonly (readonly [address: string, port: number, expected: string | RegExp])[] = [
    ["203.0.113.4", 80, "free"],
    ["198.51.100.1", 80, "unless-listened"],
    ["198.51.100.2", 80, "unless-listened"],
    ["2001:db8::2", 443, "unless-listened"],
    ["198.51.100.9", 80, "unless-port-listened"],
    ["198.51.100.9", 8472, /^node node-b, which keeps port 8472/],
    ["198.51.100.9", 9100, /^node node-b, which keeps port 9100/],
    ["198.51.100.1", 22, /^this node, which keeps port 22/],
    ["198.51.100.2", 10_250, /^this node, which keeps port 10250/],
    ["198.51.100.9", 2379, /^node node-b, which keeps port 2379/],
    ["198.51.100.9", 7443, /^node node-b, which keeps port 7443/],
    ["198.51.100.2", 9200, /^this node, where port 9200 is an endpoint of namespace metrics/],
    ["198.51.100.1", 30_080, /^this node, where port 30080 is a NodePort of Service shop\/other/],
    ["198.51.100.9", 30_080, /^node node-b, where port 30080 is a NodePort of Service shop\/other/],
    ["203.0.113.4", 30_080, "free"],
    ["203.0.113.1", 443, /^the API server/],
    ["203.0.113.1", 444, "free"],
    ["10.96.0.10", 80, "free"],
    ["10.96.0.11", 80, /^a ServiceCIDR/],
    ["10.1.2.3", 80, /^the pods \(10\.1\.0\.0\/16\)/],
    ["fd10::5", 80, /^the pods/],
    ["203.0.113.50", 80, /^an endpoint of namespace db/],
    ["127.0.0.1", 80, "loopback"],
    ["::1", 80, "loopback"],
    ["169.254.169.254", 80, "the link"],
    ["fd00:ec2::254", 80, /metadata/],
    ["fe80::1", 80, "the link"],
    ["224.0.0.1", 80, "multicast"],
    ["0.0.0.0", 80, "no host"],
  ];
  for (const [address, port, expected] of rows) {
    const found = said("guarded", address, port);
    if (typeof expected === "string") assert.equal(found, expected, `${address}:${port}`);
    else assert.match(found, expected, `${address}:${port}`);
  }
  assert.equal(said("guarded", "203.0.113.50", 80, "db"), "free", "endpoints of the own namespace");
  assert.equal(said("guarded", "198.51.100.2", 9200, "metrics"), "unless-listened");
  assert.equal(said("guarded", "203.0.113.50", 80, "shop", true), "free", "a slice takes no load balancer's address");
  assert.match(said("guarded", "10.1.2.3", 80, "shop", true), /^the pods/);
});

test("judgeAddress: strict gives none of the addresses of this Node besides, and kube-proxy's mode refuses loopback alone", () => {
  assert.equal(said("strict", "198.51.100.1"), "this node");
  assert.equal(said("strict", "198.51.100.2"), "unless-listened");
  assert.match(said("strict", "10.1.2.3"), /^the pods/);
  for (const address of ["198.51.100.1", "198.51.100.9", "203.0.113.1", "10.96.0.11", "10.1.2.3", "169.254.169.254"])
    assert.equal(said("kube-proxy", address, 22), "free", address);
  assert.equal(said("kube-proxy", "127.0.0.1"), "loopback");
});

test("parsePortRanges: ports and ranges; anything else is refused", () => {
  assert.deepEqual(parsePortRanges(" 3389, 8000-8100 "), [
    { first: 3389, last: 3389 },
    { first: 8000, last: 8100 },
  ]);
  assert.deepEqual(parsePortRanges(""), []);
  for (const text of ["0", "65536", "9-8", "a", "1-", "80;90"]) assert.equal(parsePortRanges(text), undefined, text);
});
