// in turn: probes of routers and echoes of a stream need the processor within a second
/**
 * A router of an Egress whose container is killed and started again in its sandbox: tunnels, rules and connection tracking stay in the pod's network namespace, and so do connections through it,
 * although the pod is not ready meanwhile. `coild`, `coil-egress` and `service-proxy` as shipped; the test does the kubelet's and the control plane's part.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sleep } from "#base/async";
import { resources } from "#kube/client";
import { egressLabels, type SpecifiedEgress } from "#kube/coil";
import { NODE } from "#test/cni-node";
import { EGRESS, NEAR, openEgressNode } from "#test/egress-node";
import { ISTHMUS, start, until } from "#test/lab";
import { childrenOf } from "../../src/features/egress-controller/children.ts";

/** When the kubelet says so, after a router that answers nothing is left. */
const LATE_MS = 2500;
/** The additional time for which the process is away. */
const AWAY_MS = 3000;
const STEP_MS = 200;
/** A router to which the Service sends what has no router; nobody is there. */
const NOWHERE = "10.210.9.9";
const SOON = { deadlineMs: 20_000, everyMs: 200 };

test("coil-egress: killed and started again in its sandbox it loses no connection, though its pod is not ready and the Service's flows go elsewhere", async (t) => {
  const bed = await openEgressNode(t);
  const { node, router } = bed;
  const { api } = node;
  await bed.makeEgress([`${NEAR[4]}/32`]);
  const settings = {
    image: "i",
    backend: "nftables",
    tunnelDriver: "vxlan",
    port: 5555,
    inCluster: [],
    metricsFrom: [],
  } as const;
  const egress = { metadata: { ...EGRESS, uid: "u" }, spec: { destinations: [] } } as unknown as SpecifiedEgress;
  // As the controller makes it.
  const annotations = childrenOf(egress, settings).service.metadata.annotations ?? {};
  await bed.makeService(annotations);
  const condition = async (name: string, namespace: string, isReady: boolean): Promise<void> => {
    const conditions = [{ type: "Ready", status: isReady ? "True" : "False" }];
    await api.patch(
      resources.pods,
      { name, namespace },
      { type: "merge", body: { status: { conditions } } },
      { subresource: "status" },
    );
  };
  const endpoint = (address: string, isReady: boolean) => {
    const conditions = { ready: isReady, serving: isReady, terminating: false };
    return { addresses: [address], conditions, nodeName: NODE };
  };
  const setSlice = async (endpoints: readonly object[]): Promise<void> => {
    const metadata = {
      name: "nat-routers",
      namespace: EGRESS.namespace,
      labels: { "kubernetes.io/service-name": EGRESS.name },
    };
    const ports = [{ name: "", port: 5555, protocol: "UDP" }];
    const body = { metadata, addressType: "IPv4", ports, endpoints };
    await api.patch(resources.endpointSlices, metadata, { type: "apply", body, fieldManager: "test", force: true });
  };
  const other = { namespace: EGRESS.namespace, name: "other" };
  const made = await api.create(resources.pods, {
    metadata: { ...other, labels: egressLabels(EGRESS.name) },
    spec: { nodeName: "elsewhere", terminationGracePeriodSeconds: 0, containers: [{ name: "c", image: "none" }] },
  } as never);
  const status = { podIPs: [{ ip: NOWHERE }], conditions: [{ type: "Ready", status: "True" }] };
  await api.replaceStatus(resources.pods, { ...made, status } as never);
  await condition("router", EGRESS.namespace, true);
  await setSlice([endpoint(router[4], true)]);
  const flags = [
    `--hostname-override=${NODE}`,
    "--min-sync-period=0s",
    `--kubeconfig=${node.folder}/service-proxy-kubeconfig`,
  ];
  const proxy = start(node.inside(ISTHMUS, "service-proxy", ...flags), { timeoutMs: 120_000 });
  t.after(async () => {
    proxy.child.kill("SIGKILL");
    await proxy.ended;
  });
  const said = { seen: () => `${proxy.said()}\n${node.said()}` };

  await bed.run("client", EGRESS.name);
  await bed.sees("client", NEAR[4], router[4], SOON.deadlineMs);
  const check = await bed.stream("client", NEAR[4]);
  const run = async (...command: readonly string[]): Promise<string> =>
    (await start(node.inside(...command)).ended).stdout;
  const isUp = async (): Promise<boolean> =>
    (await run("curl", "-sS", "http://127.0.0.1:9384/metrics")).includes('egress="nat",router="router"} 1');
  await until("coild has had an answer of the router", isUp, { ...SOON, ...said });

  const holds = async (forMs: number): Promise<void> => {
    for (const endMs = performance.now() + forMs; performance.now() < endMs; await sleep(STEP_MS)) await check();
  };
  let process = bed.routerProcess;
  for (let round = 0; round < 2; round += 1) {
    const { child, ended } = process;
    child.kill("SIGKILL");
    await ended;
    await holds(LATE_MS);
    await condition("router", EGRESS.namespace, false);
    await setSlice([endpoint(router[4], false), endpoint(NOWHERE, true)]);
    const rules = (): Promise<string> => run("nft", "list", "ruleset");
    await until("new flows go elsewhere", async () => (await rules()).includes(`${NOWHERE} . 5555`), {
      ...SOON,
      ...said,
    });
    await holds(AWAY_MS);
    process = await bed.startRouter();
    await condition("router", EGRESS.namespace, true);
    await setSlice([endpoint(router[4], true)]);
    await holds(LATE_MS);
  }
  await bed.sees("client", NEAR[4], router[4], SOON.deadlineMs);
  assert.match(node.said(), /the process of a router is away; its kernel forwards on/);
  assert.doesNotMatch(node.said(), /answers no probes/);
});
