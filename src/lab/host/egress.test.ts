import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "#kube/client";
import { planTopology } from "#lab/topology";
import { planLabEgress } from "./egress.ts";
import { routerRoutes } from "./router-routes.ts";

const PATHS = { routerKubeconfig: "/run/isthmus/lab-x/kubeconfig-routers" };
const topologyOf = (egress: boolean, families: "dual" | "ipv6" = "dual") =>
  planTopology({ lab: "x", nodes: 2, families, tunnel: false, egress });

test("planLabEgress: none without the flag; else sites outside of every family, and the command of routers", () => {
  const options = { paths: PATHS, isthmus: ["isthmus"] };
  assert.equal(planLabEgress(topologyOf(false), options), undefined);
  const egress = planLabEgress(topologyOf(true), options);
  assert.ok(egress !== undefined);
  assert.equal(egress.outside, "isthmus-x-outside");
  assert.deepEqual(
    egress.sites.map(({ name, addresses }) => [name, ...addresses]),
    [
      ["both", "198.18.1.9", "2001:db8:e1::9"],
      ["pair", "198.18.2.9", "2001:db8:e2::9"],
      ["later", "198.18.3.9", "2001:db8:e3::9"],
    ],
  );
  assert.deepEqual(egress.router.command, ["isthmus", "coil-egress"]);
  assert.deepEqual(egress.router.args, [
    "--kubeconfig=/run/isthmus/lab-x/kubeconfig-routers",
    "--tunnel-driver=auto",
    "--backend=nftables",
    "--drain-delay=4000ms",
  ]);
  const six = planLabEgress(topologyOf(true, "ipv6"), options);
  assert.deepEqual(six?.sites[0]?.networks, ["2001:db8:e1::/64"]);
});

test("routerRoutes: each address of a router by its node, without pods that have ended, have no address or are elsewhere", () => {
  const pod = (nodeName: string, phase: string, ...ips: readonly string[]) =>
    ({ spec: { nodeName }, status: { phase, podIPs: ips.map((ip) => ({ ip })) } }) as unknown as Pod;
  const pods = [
    pod("node1", "Running", "10.103.0.0", "fd10:103::"),
    pod("node2", "Pending"),
    pod("node2", "Failed", "10.103.0.1"),
    pod("elsewhere", "Running", "10.103.0.2"),
  ];
  assert.deepEqual(
    routerRoutes(pods, topologyOf(true)).map(({ address, node }) => `${address} via ${node}`),
    ["10.103.0.0 via 172.31.0.11", "fd10:103:: via fd31:0:0:1::b"],
  );
});
