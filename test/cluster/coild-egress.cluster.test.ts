/** NAT clients as shipped: `coil` and `coild` on a node, the router `coil-egress` in a pod of it, and a host outside that knows the router alone. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { test } from "node:test";
import { sleep } from "#base/async";
import { resources } from "#kube/client";
import { coilResources, egressLabels } from "#kube/coil";
import { EGRESS, FAMILIES, FAR, NEAR, openEgressNode, VXLAN } from "#test/egress-node";
import { until } from "#test/lab";

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`coild, ${how}: a pod that names an Egress reaches the outside as the router in both families, and follows each change while a stream runs`, async (t) => {
    const bed = await openEgressNode(t, { isChained });
    const { router } = bed;
    await bed.makePod("early", EGRESS.name);
    const refused = await bed.add("early");
    assert.deepEqual([refused.code, refused.json?.["code"]], [1, 11], JSON.stringify(refused.json));
    assert.match(String(refused.json?.["msg"]), /^Egress "internet\/nat" does not exist/);
    if (!isChained) assert.equal(bed.node.attachments().length, 1, "only the router has a link");
    await bed.del("early");
    await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
    const [first = ""] = await bed.makeService();
    await bed.run("client", EGRESS.name);
    await bed.run("plain");
    for (const family of FAMILIES) await bed.sees("client", NEAR[family], router[family]);
    assert.equal(await bed.seen("client", FAR[4]), "none");
    assert.equal(await bed.seen("plain", NEAR[4]), "none");
    const check = await bed.stream("client", NEAR[4]);
    // A router that comes later sends from another address.
    const taken = (): string =>
      execFileSync(
        "nsenter",
        [`--net=/run/netns/${bed.space("client")}`, "nft", "list", "table", "inet", "coil-client"],
        {
          encoding: "utf8",
        },
      );
    const later = { namespace: EGRESS.namespace, name: "later" };
    const made = await bed.node.api.create(resources.pods, {
      metadata: { ...later, labels: egressLabels(EGRESS.name) },
      spec: { nodeName: "elsewhere", terminationGracePeriodSeconds: 0, containers: [{ name: "c", image: "none" }] },
    } as never);
    await bed.node.api.replaceStatus(resources.pods, { ...made, status: { podIPs: [{ ip: "10.210.9.9" }] } } as never);
    await until("packets of it are taken", () => taken().includes("10.210.9.9"), {
      deadlineMs: 10_000,
      seen: () => `${taken()}${bed.node.said()}`,
    });
    await bed.node.api.delete(resources.pods, later);
    await until("they are not any more", () => !taken().includes("10.210.9.9"), {
      deadlineMs: 10_000,
      seen: () => `${taken()}${bed.node.said()}`,
    });
    // A destination more, within a second.
    await bed.destinations([`${NEAR[4]}/32`, `${NEAR[6]}/128`, `${FAR[4]}/32`, `${FAR[6]}/128`]);
    for (const family of FAMILIES) await bed.sees("client", FAR[family], router[family], 1000);
    await check();
    await bed.destinations([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
    await until("the destination is gone", () => !bed.leftIn("client").includes(FAR[4]), { deadlineMs: 10_000 });
    await check();
    // Another address of the Service.
    await bed.node.api.delete(resources.services, EGRESS);
    const [second = ""] = await bed.makeService();
    assert.notEqual(second, first);
    await until("the tunnel is a new one", () => bed.leftIn("client").includes(`throw ${second}`), {
      deadlineMs: 10_000,
    });
    assert.doesNotMatch(bed.leftIn("client"), new RegExp(`throw ${first} `));
    await bed.sees("client", NEAR[4], router[4]);
    // Annotations of running pods.
    await bed.annotate("plain", EGRESS.name);
    await bed.sees("plain", NEAR[6], router[6]);
    await bed.annotate("client", null);
    await until("nothing is left in the client", () => bed.leftIn("client") === "", { deadlineMs: 10_000 });
    assert.equal(await bed.seen("client", NEAR[4]), "none");
    await bed.completeEgress();
    assert.deepEqual((await bed.isClean()).checked.egress, {
      ...{ egresses: 1, clients: 2, routers: 1 },
      ...{ clientsElsewhere: 0, routersElsewhere: 0 },
    });
    await bed.node.api.delete(coilResources.egresses, EGRESS);
    // A pod that names it does not get out with its own address.
    await until("it is closed for the other", () => /^unreachable/m.test(bed.leftIn("plain")), { deadlineMs: 10_000 });
    await until("without a tunnel", () => !/throw|nat_|fou/.test(bed.leftIn("plain")), { deadlineMs: 10_000 });
    for (const family of FAMILIES) assert.equal(await bed.seen("plain", NEAR[family]), "none");
    const closed = await bed.audit();
    assert.deepEqual(
      closed.findings
        .filter(({ kind }) => kind.startsWith("client-"))
        .map(({ kind, text }) => `${kind} ${text.slice(0, 18)}`),
      ["early", "plain"].map((pod) => `client-annotation pod default/${pod}:`),
    );
    await bed.annotate("plain", null);
    await until("nothing is left in the other", () => bed.leftIn("plain") === "", { deadlineMs: 10_000 });
    const { findings } = await bed.audit();
    assert.deepEqual(
      findings.filter(({ kind }) => kind.startsWith("client-")).map(({ kind, text }) => `${kind} ${text.slice(0, 18)}`),
      ["client-annotation pod default/early:"],
      "what is left is in the API alone",
    );
    // It has the rights of deploy/pods alone: behind another plugin none on blocks, for which it has not asked.
    assert.doesNotMatch(bed.node.said(), /forbidden/i);
    const { addressBlocks, blockRequests, egresses } = coilResources;
    const may = await Promise.all([addressBlocks, blockRequests, egresses].map((type) => bed.mayList(type)));
    assert.deepEqual(may, [!isChained, !isChained, true]);
    // The event tells what the runtime was told.
    const { items } = await bed.node.api.listAll(resources.events);
    assert.ok(
      items.some(
        ({ reason, note }) => reason === "EgressNotReady" && /"internet\/nat" does not exist/.test(note ?? ""),
      ),
    );
  });
}

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`coild, ${how}: a pod that its Egress does not allow waits for the permission; one that loses it is closed, also after a restart, and reached nothing meanwhile`, async (t) => {
    const bed = await openEgressNode(t, { isChained });
    const { router, node } = bed;
    await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
    await bed.makeService();
    const allow = (names: readonly string[]) =>
      node.api.patch(coilResources.egresses, EGRESS, {
        type: "merge",
        body: { spec: { allowedNamespaces: { names } } },
      });
    await allow(["other"]);
    const starting = bed.run("client", EGRESS.name);
    await until("the event is there", async () => {
      const { items } = await node.api.listAll(resources.events);
      const told = items.filter(({ reason }) => reason === "EgressRefused").map(({ note = "" }) => note);
      assert.ok(told.length <= 1, told.join());
      return /^Egress "internet\/nat" does not allow pods of namespace "default": ask .*spec\.allowedNamespaces/.test(
        told.join(),
      );
    });
    await allow(["default"]);
    await starting;
    for (const family of FAMILIES) await bed.sees("client", NEAR[family], router[family]);
    await allow(["other"]);
    const isClosed = (): boolean => /^unreachable/m.test(bed.leftIn("client")) && !/nat_/.test(bed.leftIn("client"));
    await until("it is closed", isClosed, { deadlineMs: 10_000 });
    assert.equal(await bed.seen("client", NEAR[4]), "none");
    const closed = bed.leftIn("client");
    await node.killCoild();
    await node.startCoild(...bed.coildFlags);
    // A pod that is made after the start shows that those before it have been compared.
    await bed.run("plain");
    await allow(["other", "else"]);
    assert.equal(bed.leftIn("client"), closed);
    await allow(["default"]);
    for (const family of FAMILIES) await bed.sees("client", NEAR[family], router[family]);
    await bed.completeEgress();
    await bed.isClean();
    assert.doesNotMatch(node.said(), /forbidden/i);
  });
}

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`coild, ${how}: where a router of the node refuses flows for want of source ports, the Egress and its client have an event, and nobody else has`, async (t) => {
    const bed = await openEgressNode(t, { isChained });
    const { router, node } = bed;
    await bed.makeEgress([`${NEAR[4]}/32`]);
    await bed.makeService();
    const client = await bed.run("client", EGRESS.name);
    const plain = await bed.run("plain");
    // A client on another node, whose Pod only the API server knows.
    const elsewhere = await bed.makePod("elsewhere", EGRESS.name, "other-node");
    await node.api.replaceStatus(resources.pods, {
      ...elsewhere,
      status: { podIP: "10.210.9.9", podIPs: [{ ip: "10.210.9.9" }] },
    });
    await bed.sees("client", NEAR[4], router[4]);
    const refused = [client[4], plain[4], "10.210.9.9"].map((one) => `${one} . tcp . ${NEAR[4]} . 443`).join(", ");
    const elements = ["nft", "add", "element", "inet", "coil-egress", "spent4", "{", refused, "}"];
    const told = async (): Promise<readonly string[]> => {
      execFileSync("nsenter", [`--net=/run/netns/${bed.space("router")}`, ...elements]);
      const { items } = await node.api.listAll(resources.events);
      return items
        .filter(({ reason }) => reason === "EgressPortsExhausted")
        .map(({ regarding, note }) => `${regarding?.kind} ${regarding?.namespace}/${regarding?.name}: ${note}`)
        .toSorted();
    };
    let all: readonly string[] = [];
    await until(
      "there are three events",
      async () => {
        all = await told();
        return all.length >= 3;
      },
      { deadlineMs: 20_000, everyMs: 500, seen: node.said },
    );
    assert.deepEqual(
      all.map((text) => text.split(":")[0]),
      [`Egress internet/nat`, "Pod default/client", "Pod default/elsewhere"],
    );
    assert.match(all[0] ?? "", new RegExp(`Router router refuses new flows to tcp ${NEAR[4]}:443: .*default/client`));
    assert.doesNotMatch(node.said(), /forbidden/i);
  });
}

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`coild, ${how}: killed and started again it changes nothing that is right, and makes what changed meanwhile; a pod without its namespace stops no other`, async (t) => {
    const bed = await openEgressNode(t, { isChained });
    const { node, router } = bed;
    await bed.makeEgress([`${NEAR[4]}/32`]);
    await bed.makeService();
    await bed.run("broken", EGRESS.name);
    await bed.run("client", EGRESS.name);
    await bed.run("later");
    await bed.sees("client", NEAR[4], router[4]);
    const check = await bed.stream("client", NEAR[4]);
    const before = bed.leftIn("client");
    const links = bed.ip(bed.space("client"), "-o", "link");
    await node.killCoild();
    await check();
    bed.kernel.deleteNetNs(bed.space("broken"));
    await bed.annotate("later", EGRESS.name);
    await node.startCoild(...bed.coildFlags);
    await bed.sees("later", NEAR[4], router[4]);
    assert.equal(bed.leftIn("client"), before);
    assert.equal(bed.ip(bed.space("client"), "-o", "link"), links);
    // The router is a pod of this node that names no Egress, with rules and routes of a client's marks.
    assert.match(bed.ip(bed.space("router"), "rule"), /^2000:\s+from all iif eth0 lookup 118 proto 30/m);
    assert.match(bed.ip(bed.space("router"), "-6", "route", "show", "table", "118"), /encap ip6 /);
    await check();
    // Edits and kills at random moments; the last state holds.
    for (let turn = 0; turn < 4; turn += 1) {
      await bed.destinations([`${NEAR[4]}/32`, ...Array.from({ length: 50 }, (_, at) => `192.0.${turn + 3}.${at}/32`)]);
      if (turn % 2 === 1) {
        await node.killCoild();
        await node.startCoild(...bed.coildFlags);
      }
    }
    await bed.destinations([`${NEAR[4]}/32`, `${FAR[4]}/32`]);
    await bed.sees("client", FAR[4], router[4]);
    await bed.sees("later", FAR[4], router[4]);
    await until("no edit is left", () => !bed.leftIn("client").includes("192.0."), { deadlineMs: 10_000 });
    await check();
    await bed.completeEgress();
    const { findings } = await bed.audit();
    assert.match(
      JSON.stringify(findings),
      /client-namespace.*no network namespace on this node is that of pod default\/broken/,
    );
    await bed.del("broken");
    await node.api.delete(resources.pods, { namespace: "default", name: "broken" });
    await bed.isClean();
    assert.doesNotMatch(node.said(), /because of a bug/);
  });
}

/** The rules that mark connections, in the chains that one packet filter uses. */
function rulesIn(space: string, backend: "iptables" | "nftables"): string {
  const inside = [`--net=/run/netns/${space}`, "--"];
  if (backend === "iptables")
    return ["iptables", "ip6tables"]
      .map((command) => execFileSync("nsenter", [...inside, command, "-w", "-t", "mangle", "-S"], { encoding: "utf8" }))
      .join("");
  const chains = ["input", "output"].flatMap((chain) => ["ip", "ip6"].map((family) => [family, "mangle", chain]));
  const list = (chain: readonly string[]): string => {
    const { status, stdout } = spawnSync("nsenter", [...inside, "nft", "list", "chain", ...chain], {
      encoding: "utf8",
    });
    return status === 0 ? stdout : "";
  };
  return chains.map(list).join("");
}

for (const backend of ["iptables", "nftables"] as const) {
  const other = backend === "iptables" ? ("nftables" as const) : ("iptables" as const);
  test(`coild --enable-originating-only --backend=${backend}: a client is reached from outside, goes out as the router, an edit of the Egress reverses it, and a start with the other packet filter leaves nothing in this one`, async (t) => {
    const bed = await openEgressNode(t, { more: ["--enable-originating-only", `--backend=${backend}`] });
    await bed.makeEgress(["0.0.0.0/0", "::/0"]);
    await bed.makeService();
    const client = await bed.run("client", EGRESS.name);
    await bed.serveIn("client", client);
    const peer = await bed.run("peer");
    await bed.serveIn("peer", peer);
    for (const family of FAMILIES) {
      await bed.sees("client", NEAR[family], bed.router[family]);
      assert.equal(await bed.isReached(client[family]), true);
      // Though the destinations are everything: traffic inside the cluster does not pass the router.
      assert.equal(await bed.seen("client", peer[family]), client[family]);
      assert.equal(await bed.seen("peer", client[family]), peer[family]);
    }
    const say = (originatingOnly: boolean | null) =>
      bed.node.api.patch(coilResources.egresses, EGRESS, { type: "merge", body: { spec: { originatingOnly } } });
    await say(false);
    const hasRule = (): boolean => /^1000:/m.test(bed.ip(bed.space("client"), "rule"));
    await until("the rule is gone", () => !hasRule(), { deadlineMs: 10_000 });
    assert.equal(await bed.isReached(client[4]), false);
    assert.equal(await bed.seen("client", NEAR[4]), bed.router[4]);
    await say(null);
    await until("it is reached again", () => bed.isReached(client[6]), { deadlineMs: 10_000 });
    // A start with the other packet filter.
    await bed.node.killCoild();
    assert.equal(await bed.isReached(client[4]), true);
    const marks = (): number => rulesIn(bed.space("client"), other).match(/coil-(in|out)put-/g)?.length ?? 0;
    assert.equal(marks(), 0);
    await bed.node.startCoild(VXLAN, `--backend=${other}`, "--enable-originating-only");
    await until("the other packet filter has the marks", () => marks() === 4, { deadlineMs: 10_000 });
    await until("this one has none", () => !/coil-/.test(rulesIn(bed.space("client"), backend)), {
      deadlineMs: 10_000,
    });
    for (const family of FAMILIES) assert.equal(await bed.isReached(client[family]), true);
    // A kill, and a start without the flag and with the first packet filter.
    await bed.node.killCoild();
    await bed.node.startCoild(VXLAN, `--backend=${backend}`);
    await until("the rule is gone", () => !hasRule(), { deadlineMs: 10_000 });
    for (const one of [backend, other]) assert.doesNotMatch(rulesIn(bed.space("client"), one), /coil-/);
    await bed.completeEgress();
    await bed.isClean();
  });
}

test("coild killed at any moment of an ADD: the runtime's next ADD gives the pod its address and its way, and DEL leaves nothing", async (t) => {
  const bed = await openEgressNode(t);
  const { node, router } = bed;
  await bed.makeEgress([`${NEAR[4]}/32`, `${NEAR[6]}/128`]);
  await bed.makeService();
  await bed.completeEgress();
  const links = node.attachments().length;
  for (let turn = 0; turn < 5; turn += 1) {
    const name = `killed${turn}`;
    const pod = await bed.makePod(name, EGRESS.name);
    const first = bed.add(name);
    await sleep(Math.random() * 60);
    await node.killCoild();
    const { code, json } = await first;
    assert.ok(
      code === 0 || json?.["code"] === 11 || json?.["code"] === 5 || json?.["code"] === 999,
      JSON.stringify(json),
    );
    await node.startCoild(...bed.coildFlags);
    const added = await bed.add(name);
    assert.equal(added.code, 0, JSON.stringify(added.json));
    const ips = (added.json?.["ips"] ?? []) as readonly { readonly address: string }[];
    const podIPs = ips.map(({ address }) => ({ ip: address.split("/")[0] ?? "" }));
    await node.api.replaceStatus(resources.pods, { ...pod, status: { phase: "Running", podIPs } });
    for (const family of FAMILIES) await bed.sees(name, NEAR[family], router[family]);
    assert.equal(node.attachments().length, links + 1);
    assert.equal((await bed.del(name)).code, 0);
    await until("the link is gone", () => node.attachments().length === links, { deadlineMs: 10_000 });
    await node.api.delete(resources.pods, { namespace: "default", name });
    await bed.isClean();
  }
  assert.doesNotMatch(node.said(), /because of a bug/);
});
