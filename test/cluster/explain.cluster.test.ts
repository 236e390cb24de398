import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type ApiServer, startApiServer } from "#lab/api-server";
import { commandsOf, follow } from "#test/guide";
import { ISTHMUS, isthmus, start, until } from "#test/lab";
import { Bed } from "../../src/features/service-proxy/testing/bed.ts";
import { addressesOf, SERVICE_PORT, TARGET_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

const PREFIX = `isp-explain-${process.pid}`;
const folder = mkdtempSync(join(tmpdir(), "isthmus-explain-"));
const kubeconfig = join(folder, "kubeconfig");
const FAMILIES = [4, 6] as const;
const FLAGS = [`--kubeconfig=${kubeconfig}`, "--cluster-cidr=10.180.0.0/16,fd00:10:180::/48"];
let server: ApiServer;
let bed: Bed;

before(async () => {
  const cidrs = FAMILIES.map((family) => addressesOf(family).serviceCIDR);
  const serviceRanges = { cidrs, nodePorts: { first: 30_000, last: 32_767 } };
  server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    serviceRanges,
    log: nullLogger,
    clock: systemClock,
  });
  writeFileSync(kubeconfig, server.kubeconfig());
  bed = await Bed.open(PREFIX);
  const addresses = FAMILIES.map((family) => ({ type: "InternalIP", address: String(addressesOf(family).node) }));
  const clusterIPs = FAMILIES.map((family) => String(addressesOf(family).clusterIP));
  const namespace = "default";
  server.seed([
    { apiVersion: "v1", kind: "Node", metadata: { name: "node-a" }, status: { addresses } },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "web", namespace },
      spec: {
        type: "NodePort",
        clusterIP: clusterIPs[0] ?? "",
        clusterIPs,
        ipFamilies: ["IPv4", "IPv6"],
        ipFamilyPolicy: "RequireDualStack",
        ports: [{ name: "http", port: SERVICE_PORT, protocol: "TCP", targetPort: TARGET_PORT, nodePort: 30_080 }],
      },
    },
    ...FAMILIES.map((family) => ({
      apiVersion: "discovery.k8s.io/v1",
      kind: "EndpointSlice",
      metadata: { name: `web-${family}`, namespace, labels: { "kubernetes.io/service-name": "web" } },
      addressType: `IPv${family}`,
      ports: [{ name: "http", port: TARGET_PORT, protocol: "TCP" }],
      endpoints: [{ addresses: [String(addressesOf(family).remoteEndpoint)], conditions: { ready: true } }],
    })),
  ]);
});

after(async () => {
  await bed[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

const nft = (...words: string[]): string =>
  execFileSync("ip", ["netns", "exec", `${PREFIX}-node`, "nft", ...words], { encoding: "utf8" });

interface Answer {
  readonly outcome: string;
  readonly table: string;
  readonly decidedBy: { readonly set: string; readonly element: string };
  readonly arrivals: readonly { readonly address: string; readonly masqueraded: boolean }[];
}

test("explain: it names the element that the proxy wrote, and a connection reaches the endpoint that it names", async (t) => {
  const places = [`--netns=/run/netns/${PREFIX}-node`, "--hostname-override=node-a"];
  const proxy = start([ISTHMUS, "service-proxy", ...FLAGS, ...places]);
  t.after(() => proxy.child.kill("SIGKILL"));
  for (const family of FAMILIES) {
    const { clusterIP, external, node, remoteEndpoint } = addressesOf(family);
    for (const [address, port] of [
      [clusterIP, SERVICE_PORT],
      [node, 30_080],
    ] as const) {
      const reach = async () => bed.connect("external", address, port);
      await until(`${address} answers`, async () => (await reach()).kind === "delivered");
      const question = [String(external), String(address), String(port)];
      const asked = await isthmus(["explain", ...FLAGS, "--node=node-a", "--json", ...question]);
      assert.equal(asked.code, 0, asked.stderr);
      const answer = JSON.parse(asked.stdout) as Answer;
      assert.equal(answer.outcome, "translated");
      assert.deepEqual(
        answer.arrivals.map((one) => one.address),
        [String(remoteEndpoint)],
      );
      const { set, element } = answer.decidedBy;
      const [key = "", value = ""] = element.split(" : ");
      const held = nft("get", "element", ...answer.table.split(" "), set, `{ ${key} }`);
      assert.ok(held.includes(value), `${element} is not in ${held}`);
    }
  }
});

test("explain-a-service.md: the commands of the page work as they stand, and the kernel has the element that the answer names", async (t) => {
  const { clusterIP, remoteEndpoint } = addressesOf(4);
  server.seed([
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "web-a", namespace: "default" },
      spec: { nodeName: "node-a", containers: [{ name: "c", image: "none" }] },
      status: { phase: "Running", podIP: "10.180.0.9", podIPs: [{ ip: "10.180.0.9" }] },
    },
  ]);
  const places = [`--netns=/run/netns/${PREFIX}-node`, "--hostname-override=node-a"];
  const proxy = start([ISTHMUS, "service-proxy", ...FLAGS, ...places]);
  t.after(() => proxy.child.kill("SIGKILL"));
  await until("the proxy has synced", async () => nft("list", "ruleset").includes("isthmus-complete"));
  const answer = await follow(commandsOf("explain-a-service.md", "(top)"), {
    kubeconfig,
    words: { "10.1.0.0/16": "10.180.0.0/16" },
  });
  assert.ok(answer.includes(`${remoteEndpoint}:${TARGET_PORT}`), answer);
  const [, chain = ""] = /^decided by chain (\S+) of table ip kube-proxy:$/m.exec(answer) ?? [];
  const kernel = await follow(commandsOf("explain-a-service.md", "Does the kernel agree?"), {
    wrap: ["ip", "netns", "exec", `${PREFIX}-node`],
    words: { "10.96.0.10": String(clusterIP), "lb-2": chain },
  });
  assert.ok(kernel.includes(`goto ${chain}`) && kernel.includes("dnat"), kernel);
});
