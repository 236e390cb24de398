/** `isthmus explain pod:…` on a node with NAT clients: what it says is what packets do, in both families. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import type { IpFamily } from "#base/ip";
import { type Draft, type KubeObject, resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { NODE } from "#test/cni-node";
import { EGRESS, FAMILIES, FAR, NEAR, openEgressNode } from "#test/egress-node";
import { commandsOf, follow } from "#test/guide";
import { ISTHMUS, start, until } from "#test/lab";

type Bed = Awaited<ReturnType<typeof openEgressNode>>;

interface Answer {
  readonly outcome?: string;
  readonly packet?: { readonly destination: string; readonly port: number; readonly protocol: string };
  readonly arrivals?: readonly { readonly address: string }[];
  readonly inPod: {
    readonly kind: string;
    readonly why?: string;
    readonly way: {
      readonly outcome: string;
      readonly mark: number;
      readonly isConfirmed: boolean;
      readonly isGuard: boolean;
      readonly decidedBy?: { readonly priority: number; readonly table: number };
      readonly device?: { readonly name: string };
      readonly tunnel?: { readonly remote: string; readonly driver: string };
    };
    readonly egress?: { readonly namespace: string; readonly name: string };
    readonly outer?: {
      readonly device?: { readonly name: string };
      readonly decidedBy?: { readonly priority: number };
    };
    readonly notes: readonly string[];
  };
  readonly routers?: readonly { readonly leavesAs: string; readonly isThere?: boolean; readonly pod?: string }[];
}

/** Runs explain on the node, as root. */
async function explain(bed: Bed, ...words: readonly string[]) {
  const kubeconfig = `--kubeconfig=${join(bed.node.folder, "kubeconfig")}`;
  const ranges = "--cluster-cidr=10.210.0.0/26,fd00:210::/122";
  return start(bed.node.inside(ISTHMUS, "explain", kubeconfig, `--node=${NODE}`, ranges, ...words)).ended;
}

async function ask(bed: Bed, pod: string, to: string, ...flags: readonly string[]): Promise<Answer> {
  const { code, stdout, stderr } = await explain(bed, "--json", ...flags, `pod:default/${pod}`, to, "8000");
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout) as Answer;
}

/** The slices that a cluster has for the Service of the Egress. */
async function makeSlices(bed: Bed): Promise<void> {
  for (const family of FAMILIES) {
    await bed.node.api.create(resources.endpointSlices, {
      metadata: {
        name: `nat-${family}`,
        namespace: EGRESS.namespace,
        labels: { "kubernetes.io/service-name": EGRESS.name },
      },
      addressType: `IPv${family}`,
      ports: [{ name: "", port: 5555, protocol: "UDP" }],
      endpoints: [
        {
          addresses: [bed.router[family]],
          conditions: { ready: true },
          nodeName: NODE,
          targetRef: { kind: "Pod", namespace: "default", name: "router" },
        },
      ],
    } as unknown as Draft<KubeObject & { addressType: string }> as never);
  }
}

/** Packets that a pod has sent by an interface. */
function sentBy(bed: Bed, pod: string, link: string): number {
  const listing = execFileSync("ip", ["-n", bed.space(pod), "-s", "-j", "link", "show", link], { encoding: "utf8" });
  const [{ stats64 } = { stats64: { tx: { packets: 0 } } }] = JSON.parse(listing) as {
    readonly stats64: { readonly tx: { readonly packets: number } };
  }[];
  return stats64.tx.packets;
}

test("explain: of a pod with an Egress it names rule, table, tunnel, Egress, routers and the source that the outside sees, and packets go there", async (t) => {
  const bed = await openEgressNode(t);
  await bed.makeEgress(["0.0.0.0/0", "::/0"]);
  const service = await bed.makeService();
  await makeSlices(bed);
  await bed.run("client", EGRESS.name);
  const peer = await bed.run("peer");
  await bed.serveIn("peer", peer);
  for (const family of FAMILIES) {
    await bed.sees("client", NEAR[family], bed.router[family]);
    const answer = await ask(bed, "client", NEAR[family]);
    const { way, egress, outer } = answer.inPod;
    assert.deepEqual([way.outcome, way.decidedBy?.priority, way.decidedBy?.table], ["tunnel", 2100, 118]);
    assert.equal(way.isConfirmed, true);
    assert.deepEqual(egress, EGRESS);
    assert.equal(way.tunnel?.driver, "vxlan");
    assert.equal(
      way.tunnel?.remote,
      service.find((one) => one.includes(":") === (family === 6)),
    );
    assert.equal(outer?.device?.name, "eth0");
    assert.deepEqual(answer.packet, { ...answer.packet, destination: way.tunnel?.remote, port: 5555, protocol: "UDP" });
    assert.deepEqual(
      answer.routers?.map(({ leavesAs, isThere, pod }) => [leavesAs, isThere, pod]),
      [[bed.router[family], true, "default/router"]],
    );
    // The device's counter and the outside's view.
    const device = way.device?.name ?? "";
    const before = sentBy(bed, "client", device);
    assert.equal(await bed.seen("client", NEAR[family]), answer.routers?.[0]?.leavesAs);
    assert.ok(sentBy(bed, "client", device) >= before + 3, device);
    // Inside the cluster.
    const inside = await ask(bed, "client", peer[family]);
    assert.deepEqual([inside.inPod.way.outcome, inside.inPod.way.device?.name], ["link", "eth0"]);
    assert.equal(inside.inPod.way.decidedBy?.priority, 2000);
    assert.match(inside.inPod.notes.join(), /keeps ranges of the cluster from wider destinations/);
    const then = sentBy(bed, "client", device);
    assert.equal(await bed.seen("client", peer[family]), (await addressOf(bed, "client"))[family]);
    assert.equal(sentBy(bed, "client", device), then);
    // Link-local addresses, and the pod itself.
    const linkLocal = await ask(bed, "client", family === 4 ? "169.254.1.1" : "fe80::1");
    assert.notEqual(linkLocal.inPod.way.outcome, "tunnel");
    const own = await ask(bed, "client", (await addressOf(bed, "client"))[family]);
    assert.equal(own.inPod.way.outcome, "local");
    assert.equal(own.outcome, undefined);
    // A pod without an Egress.
    const plain = await ask(bed, "peer", NEAR[family]);
    assert.deepEqual(
      [plain.inPod.way.outcome, plain.inPod.way.decidedBy?.priority, plain.outcome],
      ["link", 32_766, "untouched"],
    );
    assert.deepEqual(plain.inPod.notes, []);
  }
  const text = (await explain(bed, "pod:default/client", NEAR[4], "8000")).stdout;
  assert.match(text, /^ {2}2100 +from all lookup 118 +default via 169\.254\.55\.1 dev nat_/m);
  assert.match(text, /of Egress internet\/nat, Service address .*; the kernel's look-up says the same/);
  assert.match(text, new RegExp(`at the router ${bed.router[4].replaceAll(".", "\\.")} .*: masquerades`));
});

const addressOf = async (bed: Bed, pod: string): Promise<Readonly<Record<IpFamily, string>>> => {
  const { status } = await bed.node.api.get(resources.pods, { namespace: "default", name: pod });
  const texts = (status?.podIPs ?? []).map(({ ip = "" }) => ip);
  const of = (is6: boolean): string => texts.find((one) => one.includes(":") === is6) ?? assert.fail();
  return { 4: of(false), 6: of(true) };
};

test("explain: a tunnel that is missing is a guard that refuses; an Egress's other destinations, and rules of others, are named", async (t) => {
  const bed = await openEgressNode(t);
  await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
  await bed.makeService();
  await bed.run("client", EGRESS.name);
  for (const family of FAMILIES) {
    await bed.sees("client", NEAR[family], bed.router[family]);
    const far = await ask(bed, "client", FAR[family]);
    assert.equal(far.inPod.way.outcome, "link");
    assert.match(far.inPod.notes.join(), /no Egress that the pod uses has .* among its destinations/);
    const { way } = (await ask(bed, "client", NEAR[family])).inPod;
    // Its way out of the pod goes with the link; the guard stays.
    await bed.node.killCoild();
    bed.ip(bed.space("client"), "link", "del", way.device?.name ?? "");
    const broken = await ask(bed, "client", NEAR[family]);
    assert.deepEqual(
      [broken.inPod.way.outcome, broken.inPod.way.isGuard, broken.inPod.way.isConfirmed],
      ["refused", true, true],
    );
    assert.equal(await bed.seen("client", NEAR[family]), "none");
    const text = (await explain(bed, "pod:default/client", NEAR[family], "8000")).stdout;
    assert.match(text, /unreachable [^\n]*metric 1000000\nit is refused: the sender gets "no route to host"/);
    await bed.node.startCoild(...bed.coildFlags);
    await bed.sees("client", NEAR[family], bed.router[family]);
  }
  // A rule of another program, before ours.
  bed.ip(bed.space("client"), "rule", "add", "priority", "900", "to", NEAR[4], "blackhole");
  const { way } = (await ask(bed, "client", NEAR[4])).inPod;
  assert.deepEqual([way.outcome, way.isConfirmed, way.decidedBy?.priority], ["refused", true, 900]);
});

test("explain --answer: an answer of an originatingOnly pod leaves as it came, with both packet filters; without it through the tunnel", async (t) => {
  for (const backend of ["iptables", "nftables"]) {
    await t.test(backend, async (own) => {
      const bed = await openEgressNode(own as never, { more: [`--backend=${backend}`] });
      await bed.makeEgress(["0.0.0.0/0", "::/0"]);
      await bed.makeService();
      const client = await bed.run("client", EGRESS.name);
      await bed.serveIn("client", client);
      await bed.sees("client", NEAR[4], bed.router[4]);
      assert.equal((await ask(bed, "client", NEAR[4], "--answer")).inPod.way.outcome, "tunnel");
      assert.equal(await bed.isReached(client[4]), false);
      const body = { spec: { originatingOnly: true } };
      await bed.node.api.patch(coilResources.egresses, EGRESS, { type: "merge", body });
      for (const family of FAMILIES) {
        await until("it is reached", () => bed.isReached(client[family]), { deadlineMs: 5000 });
        const answer = (await ask(bed, "client", NEAR[family], "--answer")).inPod;
        assert.deepEqual([answer.way.outcome, answer.way.decidedBy?.priority], ["link", 1000]);
        assert.ok(answer.way.mark > 0);
        assert.equal(answer.way.device?.name, "eth0");
        assert.equal((await ask(bed, "client", NEAR[family])).inPod.way.outcome, "tunnel");
      }
    });
  }
});

test("explain: a pod of another node, a pod without namespace, one that does not exist and wrong arguments are one line each", async (t) => {
  const bed = await openEgressNode(t);
  await bed.makeEgress([`${NEAR[4]}/32`]);
  await bed.makeService();
  const refused = async (pattern: RegExp, code: number, ...words: readonly string[]): Promise<void> => {
    const { code: seen, stderr } = await explain(bed, ...words);
    assert.match(stderr, pattern);
    assert.equal(seen, code, stderr);
    assert.doesNotMatch(stderr, /\n {4}at /);
  };
  const podOn = async (name: string, nodeName: string, podIPs: readonly string[]): Promise<void> => {
    const made = await bed.node.api.create(resources.pods, {
      metadata: {
        name,
        namespace: "default",
        annotations: { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: EGRESS.name },
      },
      spec: { nodeName, containers: [{ name: "c", image: "none" }] },
    });
    const status = { phase: "Running", podIPs: podIPs.map((ip) => ({ ip })) };
    await bed.node.api.replaceStatus(resources.pods, { ...made, status });
  };
  await bed.node.api.create(resources.nodes, { metadata: { name: "node-b" } });
  await podOn("far", "node-b", ["10.210.0.60"]);
  await podOn("lost", NODE, ["10.210.0.61"]);
  await refused(
    /pod default\/far is on node node-b, and this is cni-node: run explain on node node-b, as root/,
    1,
    "--node=cni-node",
    "pod:default/far",
    NEAR[4],
    "80",
  );
  await refused(
    /no network namespace on this node has the address 10\.210\.0\.61 of pod default\/lost/,
    1,
    "pod:default/lost",
    NEAR[4],
    "80",
  );
  await refused(/there is no pod default\/nobody/, 1, "pod:default/nobody", NEAR[4], "80");
  await refused(/--answer: the source must be a pod/, 2, "--answer", "outside", NEAR[4], "80");
});

test("egress.md: the commands that show a packet's way work as they stand", async (t) => {
  const bed = await openEgressNode(t);
  await bed.makeEgress(["0.0.0.0/0", "::/0"]);
  await bed.makeService();
  await makeSlices(bed);
  await bed.run("client", EGRESS.name);
  const onNode = {
    kubeconfig: join(bed.node.folder, "kubeconfig"),
    wrap: bed.node.inside(),
  };
  const [there = "", back = ""] = commandsOf("egress.md", "See where a packet goes");
  assert.match(
    await follow([there], onNode),
    /of Egress internet\/nat, Service address .*; the kernel's look-up says the same/,
  );
  assert.match(await follow([back], onNode), /pod default\/client/);
});
