/**
 * Attacks of a hostile review on the pod network, repeated: Nodes deleted under running pods, tables flushed and links renamed
 * by hand, one container in two namespaces, objects that are wrong. No address is ever on two pods.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { systemClock } from "#base/clock";
import { isKernelError, openKernel } from "#kernel/net";
import { type Draft, KubeClient, loadKubeConfig, type Namespace, type Node, type Pod, resources } from "#kube/client";
import {
  type AddressBlock,
  type BlockRequest,
  blockRequestName,
  COIL_FINALIZER,
  coilResources,
  NODE_LABEL,
  POOL_ANNOTATION,
  POOL_LABEL,
  RESERVED_LABEL,
} from "#kube/coil";
import { labPaths } from "#lab/host";
import { ISTHMUS, isthmus, namespacesOf, type Outcome, removeLab, start, stateOf, until } from "#test/lab";

const LAB = "ct-hostile";
const NODES = ["node1", "node2", "node3"];
const { addressBlocks, addressPools, blockRequests } = coilResources;
const kernel = openKernel();
let api: KubeClient;
/** Namespaces that tests made as runtimes do. */
const sandboxes = ["x1", "x2"].map((name) => `isthmus-${LAB}-pod-${name}`);

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=3", "--pods=0"]);
  assert.equal(code, 0, stderr);
  api = new KubeClient(await loadKubeConfig({ path: labPaths(LAB).kubeconfig, clock: systemClock }), {
    userAgent: "hostile-test",
    clock: systemClock,
  });
  for (const name of sandboxes) kernel.createNetNs(name)[Symbol.dispose]();
});

after(async () => {
  await api?.close();
  for (const name of sandboxes) if (namespacesOf(LAB).includes(name)) kernel.deleteNetNs(name);
  await removeLab(LAB);
});

/** Every test starts with no pod and no block. */
beforeEach(async () => {
  for (const { metadata } of (await api.listAll(resources.pods)).items) {
    await api.delete(resources.pods, metadata);
  }
  let left = "";
  await until(
    "no block is left",
    async () => {
      const blocks = (await api.listAll(addressBlocks)).items;
      left = blocks.map(({ metadata }) => metadata.name).join(" ");
      return blocks.length === 0;
    },
    { seen: () => left },
  );
});

const netnsOf = (node: string): string =>
  stateOf(LAB).nodes.find(({ name }) => name === node)?.netns ?? assert.fail(node);

async function inNode(node: string, ...argv: string[]): Promise<string> {
  const { code, stdout, stderr } = await start(["nsenter", `--net=/run/netns/${netnsOf(node)}`, ...argv]).ended;
  assert.equal(code, 0, `${argv.join(" ")}: ${stderr}`);
  return stdout;
}

function pod(name: string, node: string, namespace = "default"): Draft<Pod> {
  return {
    metadata: { name, namespace },
    spec: { nodeName: node, terminationGracePeriodSeconds: 0, containers: [{ name: "main", image: "lab/pause" }] },
  };
}

/** A Pod that the scheduler finds no node for, so that the test calls for it as a runtime does, on whatever node. */
function unbound(name: string): Draft<Pod> {
  const { metadata, spec: { nodeName: _, ...spec } = {} } = pod(name, "");
  return { metadata, spec: { ...spec, nodeSelector: { none: "has-it" } } } as Draft<Pod>;
}

async function create(...pods: Draft<Pod>[]): Promise<void> {
  for (const one of pods) await api.create(resources.pods, one);
}

const describe = ({ metadata, status }: Pod): string =>
  `${metadata.name} ${status?.phase} ${status?.podIPs?.map(({ ip }) => ip).join()} ${status?.message ?? ""}`;

/** Waits until all pods run; returns their addresses by name, of which none is there twice. */
async function addresses(): Promise<ReadonlyMap<string, readonly string[]>> {
  let pods: readonly Pod[] = [];
  await until(
    "all pods run",
    async () => {
      pods = (await api.listAll(resources.pods)).items;
      return pods.every(({ status }) => status?.phase === "Running");
    },
    { seen: () => pods.map(describe).join("; ") },
  );
  const found = new Map(pods.map((one) => [one.metadata.name, (one.status?.podIPs ?? []).map(({ ip }) => String(ip))]));
  const all = [...found.values()].flat();
  assert.equal(new Set(all).size, all.length, `an address is on two pods: ${pods.map(describe).join("; ")}`);
  assert.deepEqual(sharedInKernel(), []);
  return found;
}

/** Addresses that two pods' namespaces have. */
function sharedInKernel(): string[] {
  const holders = namespacesOf(LAB)
    .filter((name) => name.includes("-pod-"))
    .flatMap((name) => {
      try {
        using netns = kernel.openNetNs({ name });
        using stack = kernel.openStack(netns);
        return stack.addresses.list().flatMap(({ address, scope }) => (scope === "global" ? [String(address)] : []));
      } catch (error) {
        // Deleted since it was listed.
        if (!isKernelError(error)) throw error;
        return [];
      }
    });
  return holders.filter((address, at) => holders.indexOf(address) !== at);
}

/** Waits until the audit has no findings, except those that `but` allows. */
async function goodAudit(but: readonly string[] = []): Promise<void> {
  const sockets = NODES.map((node) => `--socket=${labPaths(LAB).socketOf(node)}`);
  let last = "";
  await until(
    "the audit finds nothing",
    async () => {
      const { stdout } = await isthmus(["audit", "--json", `--kubeconfig=${labPaths(LAB).kubeconfig}`, ...sockets]);
      last = stdout;
      if (stdout === "") return false;
      const { findings } = JSON.parse(stdout) as { readonly findings: readonly { readonly kind: string }[] };
      return findings.every(({ kind }) => but.includes(kind));
    },
    { everyMs: 250, seen: () => last },
  );
}

/** The answer of a daemon on a port of a node. */
async function http(node: string, port: number, path: string): Promise<string> {
  const script = `exec 3<>/dev/tcp/127.0.0.1/${port}; printf 'GET ${path} HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3`;
  return inNode(node, "bash", "-c", script);
}

/** As {@link http}; empty without a listener, as when a daemon starts. */
async function httpOnceUp(node: string, port: number, path: string): Promise<string> {
  const script = `exec 3<>/dev/tcp/127.0.0.1/${port} && printf 'GET ${path} HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3`;
  const argv = ["nsenter", `--net=/run/netns/${netnsOf(node)}`, "bash", "-c", script];
  return (await start(argv).ended).stdout;
}

/** Kills a program of a node and waits until another one was started. */
async function kill(program: string, node: string): Promise<void> {
  const find = () => stateOf(LAB).children.find(({ name }) => name === `${program}-${node}`) ?? assert.fail(node);
  const { pid, restarts } = find();
  process.kill(pid, "SIGKILL");
  await until(`${program} of ${node} was started again`, () => find().restarts > restarts && find().pid !== pid);
}

const killCoild = (node: string): Promise<void> => kill("coild", node);

function logOf(child: string): string {
  return readFileSync(labPaths(LAB).logOf(child), "utf8");
}

/** Calls the CNI executable as a runtime on a node would. */
async function cni(
  node: string,
  command: "ADD" | "DEL" | "STATUS" | "GC",
  containerId: string,
  netns: string,
  podName: string,
  more: object = {},
): Promise<
  Outcome & { readonly answer: { readonly code?: number; readonly ips?: readonly { readonly address: string }[] } }
> {
  const config = {
    cniVersion: "1.1.0",
    name: "k8s-pod-network",
    type: "coil",
    socket: labPaths(LAB).socketOf(node),
    ...more,
  };
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: containerId,
    CNI_IFNAME: "eth0",
    CNI_NETNS: netns,
    CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=${podName}`,
    CONFIG: JSON.stringify(config),
  };
  const plugin = join(ISTHMUS, "../cni/coil");
  const argv = ["nsenter", `--net=/run/netns/${netnsOf(node)}`, "sh", "-c", `printf %s "$CONFIG" | ${plugin}`];
  const outcome = await start(argv, { env }).ended;
  return { ...outcome, answer: JSON.parse(outcome.stdout === "" ? "{}" : outcome.stdout) };
}

const linksOf = (node: string): Promise<string> => inNode(node, "ip", "link", "show");

/** Deletes a Node; returns a function that creates it again. */
async function deleteNode(name: string): Promise<() => Promise<void>> {
  const node = await api.get(resources.nodes, { name });
  await api.delete(resources.nodes, { name });
  return async () => {
    const again: Draft<Node> = { metadata: { name, labels: node.metadata.labels ?? {} }, spec: node.spec ?? {} };
    const made = await api.create(resources.nodes, again);
    if (node.status !== undefined) await api.replaceStatus(resources.nodes, { ...made, status: node.status });
  };
}

/** STATUS of the CNI executable: its exit code, and the error where there is one. */
async function cniStatus(node: string): Promise<{ readonly code?: number; readonly msg?: string }> {
  const { stdout } = await cni(node, "STATUS", "", "", "");
  return JSON.parse(stdout === "" ? "{}" : stdout);
}

test("a Node that is deleted and registers again: no other node gets its blocks meanwhile, and its pods go on", async () => {
  await create(pod("a1", "node1"), pod("a2", "node1"), pod("d1", "node1", "dual"));
  const before = await addresses();
  const blocksOf = async (node: string): Promise<string[]> => {
    const { items } = await api.listAll(addressBlocks, { labelSelector: `${NODE_LABEL}=${node}` });
    return items.map(({ metadata }) => `${metadata.name} ${metadata.uid}`).toSorted();
  };
  const blocks = await blocksOf("node1");
  const makeAgain = await deleteNode("node1");
  await until("coild says that its Node is gone", async () =>
    (await http("node1", 9385, "/readyz?verbose")).includes("this Node is not in the cluster"),
  );
  assert.equal((await cniStatus("node1")).code, 51);
  await until("the controller has noticed", () => logOf("coil-ipam-controller").includes("kept for --node-gone-grace"));
  // The first seconds are when others took them.
  await create(pod("late", "node1"), pod("x1", "node2"), pod("x2", "node3"), pod("x3", "node2", "dual"));
  await until("the other nodes' pods run", async () => {
    const { items } = await api.listAll(resources.pods);
    return items.every(({ metadata, status }) => metadata.name === "late" || status?.phase === "Running");
  });
  assert.deepEqual(sharedInKernel(), []);
  assert.deepEqual(await blocksOf("node1"), blocks);
  const reach = async (node: string): Promise<void> => {
    for (const ip of [...before.values()].flat()) await inNode(node, "ping", "-c1", "-W5", "-q", ip);
  };
  for (const node of NODES) await reach(node);
  await kill("coil-router", "node2");
  await until("the new router has compared all routes", async () =>
    (await httpOnceUp("node2", 9389, "/readyz")).includes(" 200 "),
  );
  await reach("node2");
  await makeAgain();
  await create(pod("a3", "node1"), pod("d2", "node1", "dual"));
  const now = await addresses();
  for (const [name, ips] of before) assert.deepEqual(now.get(name), ips, name);
  await goodAudit();
  await until("coild is well again", async () => (await http("node1", 9385, "/readyz?verbose")).includes("[+]ipam ok"));
  assert.deepEqual(await cniStatus("node1"), {});
  assert.match(await http("node1", 9384, "/metrics"), /^coil_coild_cut_off_attachments 0$/m);
});

test("a block that belongs to another node now: its pods are cut off with an Event, and connected again when it is back", async () => {
  await create(pod("k1", "node1"), pod("k2", "node1", "dual"));
  const before = await addresses();
  const [ip = ""] = before.get("k1") ?? [];
  const [block] = (await api.listAll(addressBlocks, { labelSelector: `${NODE_LABEL}=node1,${POOL_LABEL}=default` }))
    .items;
  assert.ok(block !== undefined);
  const give = async (node: string): Promise<void> => {
    const body = { metadata: { labels: { [NODE_LABEL]: node } } };
    await api.patch(addressBlocks, block.metadata, { type: "merge", body });
  };
  const answers = async (target: string): Promise<boolean> => {
    const argv = ["nsenter", `--net=/run/netns/${netnsOf("node1")}`, "ping", "-c1", "-W1", "-q", target];
    return (await start(argv).ended).code === 0;
  };
  assert.ok(await answers(ip));
  await give("node9");
  await until("the pod is cut off", async () => !(await answers(ip)), { everyMs: 50 });
  assert.match(
    await http("node1", 9385, "/readyz"),
    / 503 .*\[-\]attachments degraded 1 attachments are cut off.*default-/s,
  );
  assert.match(await http("node1", 9384, "/metrics"), /^coil_coild_cut_off_attachments 1$/m);
  const status = await cniStatus("node1");
  assert.deepEqual([status.code, /1 attachments are cut off/.test(status.msg ?? "")], [51, true]);
  await until("the pod has an event", async () => {
    const { items } = await api.listAll(resources.events);
    return items.some(({ reason, regarding }) => reason === "AddressLost" && regarding?.name === "k1");
  });
  for (const other of before.get("k2") ?? []) assert.ok(await answers(other), "pods of other blocks go on");
  await killCoild("node1");
  await until("a coild that starts anew says so too", async () =>
    /\[-\]attachments degraded 1 attachments are cut off/.test(await httpOnceUp("node1", 9385, "/readyz")),
  );
  assert.equal(await answers(ip), false);
  await give("node1");
  await until("the pod answers again", () => answers(ip));
  await until("coild is ready", async () => (await http("node1", 9385, "/readyz")).includes(" 200 "));
  await until("the pod is told of that, too", async () => {
    const { items } = await api.listAll(resources.events);
    return items.some(({ reason, regarding }) => reason === "AddressRestored" && regarding?.name === "k1");
  });
  assert.deepEqual(await addresses(), before);
  await goodAudit();
});

test("GC of a network removes attachments that the runtime does not know, and leaves other networks and pods", async () => {
  await create(pod("stays", "node2"));
  await addresses();
  await create(unbound("g"));
  const [x1 = "", x2 = ""] = sandboxes.map((name) => `/run/netns/${name}`);
  for (const [id, netns, network] of [
    ["cidG", x1, "net-a"],
    ["cidH", x2, "net-b"],
  ] as const) {
    const { code, stdout } = await cni("node2", "ADD", id, netns, "g", { name: network });
    assert.equal(code, 0, stdout);
  }
  const valid = { "cni.dev/valid-attachments": [] };
  assert.equal((await cni("node2", "GC", "", "", "", { name: "net-a", ...valid })).code, 0);
  assert.doesNotMatch(await linksOf("node2"), /cidG/);
  assert.match(await linksOf("node2"), /cidH/);
  const known = { "cni.dev/valid-attachments": [{ containerID: "cidH", ifname: "eth0" }] };
  assert.equal((await cni("node2", "GC", "", "", "", { name: "net-b", ...known })).code, 0);
  assert.match(await linksOf("node2"), /cidH/);
  assert.equal((await cni("node2", "GC", "", "", "", { name: "net-b", ...valid })).code, 0);
  assert.doesNotMatch(await linksOf("node2"), /cidH/);
  await api.delete(resources.pods, { namespace: "default", name: "g" });
  await addresses();
  await goodAudit();
});

test("deleted links of pods that run come back with their addresses, without a restart", async () => {
  await create(pod("v1", "node2"), pod("v2", "node2"));
  const before = await addresses();
  const namesOf = async (): Promise<(string | undefined)[]> =>
    Array.from(
      (await linksOf("node2")).matchAll(/(veth[0-9a-f]{8})@.*\n.*\n\s+alias COIL:/g),
      ([, name]) => name,
    ).sort();
  const names = await namesOf();
  assert.ok(names.length >= 2);
  for (const name of names) await inNode("node2", "ip", "link", "del", name ?? "");
  await until("the links are back", async () => JSON.stringify(await namesOf()) === JSON.stringify(names), {
    deadlineMs: 10_000,
  });
  assert.deepEqual(await addresses(), before);
  for (const ip of [...before.values()].flat()) await inNode("node2", "ping", "-c1", "-W5", "-q", ip);
  await goodAudit();
});

test("table 116 flushed, then a restart: pods keep their addresses, routes are back, nothing is given out twice", async () => {
  await create(pod("b1", "node2"), pod("b2", "node2"), pod("e1", "node2", "dual"));
  const before = await addresses();
  for (const family of ["-4", "-6"]) await inNode("node2", "ip", family, "route", "flush", "table", "116");
  await killCoild("node2");
  await create(pod("b3", "node2"), pod("b4", "node2"), pod("e2", "node2", "dual"));
  const now = await addresses();
  for (const [name, ips] of before) assert.deepEqual(now.get(name), ips, name);
  await goodAudit();
  for (const ip of [...now.values()].flat()) await inNode("node2", "ping", "-c1", "-W5", "-q", ip);
});

test("a table flushed, a rule deleted and a link set down and up while coild runs are put right", async () => {
  await create(pod("b1", "node2"), pod("e1", "node2", "dual"));
  const ips = [...(await addresses()).values()].flat();
  await inNode("node2", "ip", "rule", "del", "pref", "2000");
  await inNode("node2", "ip", "route", "flush", "table", "116");
  const name = /(veth[0-9a-f]{8})@.*\n.*\n\s+alias COIL:dual:/.exec(await linksOf("node2"))?.[1] ?? "";
  for (const state of ["down", "up"]) await inNode("node2", "ip", "link", "set", name, state);
  let seen = "";
  await until(
    "all pods answer again",
    async () => {
      for (const ip of ips) {
        const argv = ["nsenter", `--net=/run/netns/${netnsOf("node2")}`, "ping", "-c1", "-W1", "-q", ip];
        const { code, stdout } = await start(argv).ended;
        seen = stdout;
        if (code !== 0) return false;
      }
      return true;
    },
    { seen: () => seen },
  );
  assert.match(await inNode("node2", "ip", "rule", "show"), /^2000:.*lookup 116/m);
});

test("links whose aliases were changed or removed, then a restart: their addresses are not assigned again", async () => {
  await create(pod("b1", "node2"), pod("b2", "node2"));
  await addresses();
  const links = (await linksOf("node2")).matchAll(/(veth[0-9a-f]{8})@.*\n.*\n\s+alias COIL:/g);
  const names = Array.from(links, ([, name = ""]) => name);
  assert.equal(names.length, 2);
  for (const [at, name] of names.entries()) {
    await inNode("node2", "ip", "link", "set", name, "alias", at === 0 ? "somebody's" : "");
  }
  await killCoild("node2");
  await create(pod("b3", "node2"), pod("b4", "node2"));
  await addresses();
});

test("one container in two namespaces has one link; a repeated ADD that fails leaves the running one; DEL leaves nothing", async () => {
  await create(unbound("q"));
  const [x1 = "", x2 = ""] = sandboxes.map((name) => `/run/netns/${name}`);
  const first = await cni("node2", "ADD", "cidA", x1, "q");
  assert.equal(first.code, 0, first.stdout);
  const second = await cni("node2", "ADD", "cidA", x2, "q");
  assert.deepEqual(second.answer.ips, first.answer.ips, second.stdout);
  assert.equal((await linksOf("node2")).match(/alias COIL:default:cidA:eth0/g)?.length, 1);
  const foreign = ["nsenter", `--net=${x1}`, "ip", "link", "add", "eth0", "type", "bridge"];
  assert.equal((await start(foreign).ended).code, 0);
  const repeat = await cni("node2", "ADD", "cidA", x1, "q");
  assert.equal(repeat.answer.code, 999, repeat.stdout);
  const ip = first.answer.ips?.[0]?.address.split("/")[0] ?? "";
  await inNode("node2", "ping", "-c1", "-W5", "-q", ip);
  const other = await cni("node2", "ADD", "cidB", x1, "q");
  assert.equal(other.answer.code, 999, "the interface of somebody else is there still");
  assert.equal((await cni("node2", "DEL", "cidA", x2, "q")).code, 0);
  assert.doesNotMatch(await linksOf("node2"), /cid[AB]/);
  await api.delete(resources.pods, { namespace: "default", name: "q" });
  await goodAudit();
});

test("objects without a spec are refused, and pools that overlap give no address twice; nothing restarts", async () => {
  const restarts = stateOf(LAB).children.find(({ name }) => name === "coil-ipam-controller")?.restarts;
  for (const plural of ["blockrequests", "addresspools"]) {
    const body = {
      apiVersion: "coil.cybozu.com/v2",
      kind: plural === "addresspools" ? "AddressPool" : "BlockRequest",
      metadata: { name: "hostile" },
    };
    const path = `/apis/coil.cybozu.com/v2/${plural}`;
    await assert.rejects(api.request({ method: "POST", path, body }), { code: "invalid" });
  }
  const spec = { blockSizeBits: 0, subnets: [{ ipv4: "10.100.0.0/30" }] };
  await api.create(addressPools, { metadata: { name: "overlap", finalizers: [COIL_FINALIZER] }, spec });
  const namespace: Draft<Namespace> = { metadata: { name: "overlap", annotations: { [POOL_ANNOTATION]: "overlap" } } };
  await api.create(resources.namespaces, namespace);
  await create(pod("b1", "node2"), pod("o1", "node2", "overlap"), pod("o2", "node3", "overlap"));
  await addresses();
  // Before those of the other pool have theirs it would take the addresses that are left for them.
  await create(pod("b2", "node3"));
  await addresses();
  await create(pod("o3", "node1", "overlap"));
  await until("the pod is told which block is in the way", async () => {
    const { status } = await api.get(resources.pods, { namespace: "overlap", name: "o3" });
    return /pool overlap does not have free blocks: its remaining addresses overlap block default-\d+ \(10\.100\./.test(
      status?.message ?? "",
    );
  });
  await api.delete(resources.pods, { namespace: "overlap", name: "o3" });
  await goodAudit();
  assert.equal(stateOf(LAB).children.find(({ name }) => name === "coil-ipam-controller")?.restarts, restarts);
});

test("an Egress without a spec, which only a webhook would refuse, ends no coild, neither when it is made nor at the next start", async () => {
  const restarts = (): Record<string, number> =>
    Object.fromEntries(
      stateOf(LAB).children.flatMap((one) => (one.name.startsWith("coild-") ? [[one.name, one.restarts]] : [])),
    );
  const before = restarts();
  const body = { apiVersion: "coil.cybozu.com/v2", kind: "Egress", metadata: { name: "bare", namespace: "default" } };
  const path = "/apis/coil.cybozu.com/v2/namespaces/default/egresses";
  await api.request({ method: "POST", path, body });
  await killCoild("node1");
  await until("the new coild knows all Egresses", async () =>
    (await httpOnceUp("node1", 9385, "/readyz")).includes(" 200 "),
  );
  await create(pod("p1", "node1"), pod("p2", "node2"), pod("p3", "node3"));
  await addresses();
  assert.deepEqual(restarts(), { ...before, "coild-node1": (before["coild-node1"] ?? 0) + 1 });
  await api.delete(coilResources.egresses, { namespace: "default", name: "bare" });
});

test("an answered request that names a block that is gone is replaced at once: no ADD fails", async () => {
  const { uid } = (await api.get(resources.nodes, { name: "node3" })).metadata;
  const name = blockRequestName("default", "node3");
  const owner = { apiVersion: "v1", kind: "Node", name: "node3", uid };
  // The controller refuses it first, because its pool does not exist; its answer is then overwritten.
  const draft = { metadata: { name, ownerReferences: [owner] }, spec: { nodeName: "node3", poolName: "no-such-pool" } };
  let request: BlockRequest = await api.create(blockRequests, draft);
  await until("it is answered", async () => {
    request = await api.get(blockRequests, { name });
    return (request.status?.conditions ?? []).length > 0;
  });
  const conditions = [{ type: "Complete" as const, status: "True" as const, reason: "allocated" }];
  await api.replaceStatus(blockRequests, { ...request, status: { addressBlockName: "default-999", conditions } });
  const before = logOf("coild-node3").length;
  await create(pod("e1", "node3"));
  await addresses();
  assert.doesNotMatch(logOf("coild-node3").slice(before), /failed call/);
});

test("blocks that others give to a node, or take from it, are known at once", async () => {
  const block = (name: string, ipv4: string, labels: Record<string, string>): Draft<AddressBlock> => ({
    metadata: {
      name,
      labels: { [NODE_LABEL]: "node3", [POOL_LABEL]: "default", ...labels },
      finalizers: [COIL_FINALIZER],
    },
    index: 500,
    ipv4,
  });
  const exported = async (): Promise<string> => inNode("node3", "ip", "route", "show", "table", "all");
  const soon = { deadlineMs: 5000 };
  const kept = await api.create(addressBlocks, block("kept", "10.100.9.0/31", { [RESERVED_LABEL]: "true" }));
  await until("it is exported", async () => /10\.100\.9\.0\/31 dev lo table 119/.test(await exported()), soon);
  await api.create(addressBlocks, block("late", "10.100.9.2/31", {}));
  await until(
    "one that nobody waits for goes back",
    async () => (await api.listAll(addressBlocks)).items.every(({ metadata }) => metadata.name !== "late"),
    soon,
  );
  const live = await api.get(addressBlocks, { name: kept.metadata.name });
  await api.replace(addressBlocks, { ...live, metadata: { ...live.metadata, finalizers: [] } });
  await api.delete(addressBlocks, { name: kept.metadata.name });
  await until("it is exported no more", async () => !(await exported()).includes("10.100.9.0/31"), soon);
});
