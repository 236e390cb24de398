/** `isthmus audit` on a node with NAT clients and a router: it finds nothing where all is well, and names each fault that is planted on the real kernel. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { EGRESS, FAMILIES, NEAR, openEgressNode } from "#test/egress-node";
import { commandsOf, follow } from "#test/guide";
import { until } from "#test/lab";

type Bed = Awaited<ReturnType<typeof openEgressNode>>;

/** A node whose Egress has all its objects, and a client of it that works. */
async function openWhole(t: Parameters<typeof openEgressNode>[0], isChained: boolean, more: readonly string[] = []) {
  const bed = await openEgressNode(t, { isChained, more });
  await bed.makeEgress(["0.0.0.0/0", "::/0", "172.20.0.0/16"]);
  const service = await bed.makeService();
  await bed.completeEgress();
  await bed.run("client", EGRESS.name);
  await bed.run("plain");
  for (const family of FAMILIES) await bed.sees("client", NEAR[family], bed.router[family]);
  return { bed, service };
}

/** The kinds that an audit finds now, and their text. */
async function found(bed: Bed): Promise<{ readonly kinds: readonly string[]; readonly text: string }> {
  const { findings } = await bed.audit();
  return {
    kinds: [...new Set(findings.map(({ kind }) => kind))].sort(),
    text: findings.map(({ text }) => text).join("\n"),
  };
}

const inSpace = (bed: Bed, pod: string, ...argv: readonly string[]): string =>
  execFileSync("nsenter", [`--net=/run/netns/${bed.space(pod)}`, ...argv], { encoding: "utf8" });

for (const isChained of [false, true]) {
  const how = isChained ? "behind ptp" : "with our addresses";
  test(`audit, ${how}: nothing is found where all is well; each fault on the kernel and in the API is named, and gone with the fault`, async (t) => {
    const { bed } = await openWhole(t, isChained);
    const clean = await bed.isClean();
    assert.deepEqual(clean.checked.egress, {
      egresses: 1,
      clients: 1,
      routers: 1,
      clientsElsewhere: 0,
      routersElsewhere: 0,
    });
    const shown = await follow(commandsOf("egress.md", "Does everything agree?"), {
      kubeconfig: join(bed.node.folder, "kubeconfig"),
      wrap: bed.node.inside(),
      words: { "/run/coild.sock": bed.node.socket },
    });
    assert.match(shown, /^no findings: .* 1 Egresses, 1 clients, 1 routers$/m);
    // Neither coild nor the router repairs it: coild compares on its own within five minutes, the router within one.
    const ip = (pod: string, ...args: readonly string[]): string => bed.ip(bed.space(pod), ...args);
    const link = (pod: string): string => /nat_04\w+/.exec(ip(pod, "-o", "link"))?.[0] ?? assert.fail();
    /** Plants a fault, looks until it alone is named, and takes it back. */
    const plant = async (what: string, kind: string, pattern: RegExp, make: () => unknown, undo: () => unknown) => {
      await make();
      let text = "";
      const isNamed = async (): Promise<boolean> => {
        const now = await found(bed);
        ({ text } = now);
        return now.kinds.join(" ") === kind;
      };
      await until(`${what}: ${kind} alone`, isNamed, { deadlineMs: 10_000, seen: () => text });
      assert.match(text, pattern, what);
      await undo();
    };
    const route = ip("client", "route", "show", "table", "117", "172.20.0.0/16", "metric", "1024").trim().split(/\s+/);
    const rule = ["from", "all", "lookup", "117", "priority", "1900", "protocol", "30"];
    await plant(
      "a rule of a client",
      "client-lacks",
      /pod default\/client lacks IPv4 rule 1900 from all lookup 117$/,
      () => ip("client", "rule", "del", ...rule),
      () => ip("client", "rule", "add", ...rule),
    );
    await plant(
      "a route of a client",
      "client-lacks",
      /lacks route 172\.20\.0\.0\/16 .* of table 117$/,
      () => ip("client", "route", "del", "table", "117", "172.20.0.0/16", "metric", "1024"),
      () => ip("client", "route", "add", "table", "117", ...route, "metric", "1024"),
    );
    await plant(
      "a tunnel that is down",
      "client-lacks",
      /link nat_04\w+ up/,
      () => ip("client", "link", "set", link("client"), "down"),
      async () => {
        ip("client", "link", "set", link("client"), "up");
        // The kernel removes the routes of a link that is set down.
        await bed.destinations(["0.0.0.0/0", "::/0", "172.20.0.0/16", "172.21.0.0/16"]);
        await bed.destinations(["0.0.0.0/0", "::/0", "172.20.0.0/16"]);
        // Before coild has done that, it repairs the next fault too.
        await bed.isClean();
      },
    );
    await plant(
      "a setting",
      "client-lacks",
      /setting net\.ipv4\.conf\.all\.rp_filter=0 \(it is 1\)/,
      () => inSpace(bed, "client", "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1"),
      () => inSpace(bed, "client", "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0"),
    );
    await plant(
      "a foreign rule",
      "client-surplus",
      /IPv6 rule 1950 from all lookup 99$/,
      () => ip("client", "-6", "rule", "add", "priority", "1950", "lookup", "99"),
      () => ip("client", "-6", "rule", "del", "priority", "1950"),
    );
    await plant(
      "a foreign device",
      "client-stale-tunnel",
      /link nat_04beef00 to 10\.96\.77\.77/,
      () =>
        ip(
          "client",
          "link",
          "add",
          "nat_04beef00",
          "type",
          "vxlan",
          "id",
          "77",
          "remote",
          "10.96.77.77",
          "dstport",
          "5999",
        ),
      () => ip("client", "link", "del", "nat_04beef00"),
    );
    await plant(
      "a pod that is no client",
      "client-leftover",
      /pod default\/plain, which names no Egress, still has route unreachable 198\.18\.0\.0\/24/,
      () => ip("plain", "route", "add", "table", "118", "unreachable", "198.18.0.0/24", "protocol", "30"),
      () => ip("plain", "route", "del", "table", "118", "unreachable", "198.18.0.0/24"),
    );
    const way = ip("router", "route", "show", "table", "118").trim();
    const wayArgs = way.replaceAll(/ (tos|flags) \S+/g, "").split(/\s+/);
    t.diagnostic(way);
    const [client = ""] = wayArgs;
    await plant(
      "a way of the router",
      "router-no-way",
      new RegExp(`router internet/router has no way to ${client} of pod default/client$`),
      () => ip("router", "route", "del", "table", "118", client),
      () => ip("router", "route", "add", "table", "118", ...wayArgs),
    );
    await plant(
      "a way to nobody",
      "router-stray-way",
      /a way to what is no client of Egress internet\/nat: 10\.9\.9\.9$/,
      () => ip("router", "route", "add", "table", "118", "10.9.9.9", ...wayArgs.slice(1)),
      () => ip("router", "route", "del", "table", "118", "10.9.9.9"),
    );
    const lookup = ["iif", "eth0", "lookup", "118", "priority", "2000", "protocol", "30"];
    await plant(
      "the router's rule",
      "router-lacks",
      /lacks IPv6 rule 2000 from all iif eth0 lookup 118$/,
      () => ip("router", "-6", "rule", "del", ...lookup),
      () => ip("router", "-6", "rule", "add", ...lookup),
    );
    const nat = inSpace(bed, "router", "nft", "list", "table", "ip", "nat");
    const file = join(bed.node.folder, "nat.nft");
    writeFileSync(file, nat);
    await plant(
      "masquerading",
      "router-filter",
      /^the packet filter of router internet\/router lacks the IPv4 rule that masquerades$/,
      () => {
        // It looks at its packet filter every two seconds.
        bed.routerProcess.child.kill("SIGSTOP");
        inSpace(bed, "router", "nft", "flush", "table", "ip", "nat");
      },
      () => {
        inSpace(bed, "router", "nft", "delete", "table", "ip", "nat");
        inSpace(bed, "router", "nft", "-f", file);
        bed.routerProcess.child.kill("SIGCONT");
      },
    );
    await plant(
      "the Service's port",
      "egress-service",
      /^the Service of Egress internet\/nat has no UDP port 5555$/,
      () => portOf(bed, 5556),
      () => portOf(bed, 5555),
    );
    await plant(
      "rubbish in an annotation",
      "client-annotation",
      /^pod default\/plain: "internet\/\.\.\/x" is not a name/,
      () => bed.annotate("plain", "../x"),
      () => bed.annotate("plain", null),
    );
    await plant(
      "an Egress that is not there",
      "client-annotation",
      /^pod default\/plain: Egress "internet\/nta" does not exist/,
      () => bed.annotate("plain", "nta"),
      () => bed.annotate("plain", null),
    );
    const { api } = bed.node;
    const replicas = (count: number) =>
      api.patch(coilResources.egresses, EGRESS, { type: "merge", body: { spec: { replicas: count } } });
    await plant(
      "replicas",
      "egress-replicas",
      /its Deployment has replicas: 1, and not 2$/,
      () => replicas(2),
      () => replicas(1),
    );
    await plant(
      "rights",
      "egress-subjects",
      /has the subject ServiceAccount gone\/coil-egress, but there is no Egress for it$/,
      () => subjects(bed, [EGRESS.namespace, "gone"]),
      () => subjects(bed, [EGRESS.namespace]),
    );
    const slice = { name: "nat-routers", namespace: EGRESS.namespace };
    const ready = async (is: boolean) => {
      const { endpoints, ...rest } = await api.get(resources.endpointSlices, slice);
      await api.replace(resources.endpointSlices, {
        ...rest,
        endpoints: endpoints.map((one) => ({ ...one, conditions: { ready: is } })),
      });
    };
    await plant(
      "endpoints",
      "egress-endpoints",
      /has no ready endpoint/,
      () => ready(false),
      () => ready(true),
    );
    const { podIPs = [] } = (await api.get(resources.pods, { namespace: "default", name: "client" })).status ?? {};
    await plant(
      "two pods with one address",
      isChained ? "client-namespace unmarked-pod" : "client-namespace duplicate-address",
      new RegExp(`no network namespace on this node is that of pod default/${isChained ? "twin" : "client"}$`, "m"),
      async () => {
        const twin = await bed.makePod("twin", EGRESS.name);
        await api.replaceStatus(resources.pods, { ...twin, status: { phase: "Running", podIPs } });
      },
      () => api.delete(resources.pods, { namespace: "default", name: "twin" }),
    );
    await bed.isClean();
    assert.doesNotMatch(bed.node.said(), /because of a bug/);
  });
}

const portOf = (bed: Bed, port: number) =>
  bed.node.api.patch(resources.services, EGRESS, {
    type: "merge",
    body: { spec: { ports: [{ port, protocol: "UDP" }] } },
  });
const subjects = (bed: Bed, namespaces: readonly string[]) =>
  bed.node.api.patch(
    resources.clusterRoleBindings,
    { name: "coil-egress" },
    {
      type: "merge",
      body: { subjects: namespaces.map((namespace) => ({ kind: "ServiceAccount", name: "coil-egress", namespace })) },
    },
  );

test("audit: of a coild and a router that do not reach the API server it names the old tunnel, the stray way and its flows; when they do, nothing is left", async (t) => {
  const { bed, service } = await openWhole(t, false);
  const { node, routerGate } = bed;
  const gate = await bed.gateIn(node.netns, 6444);
  writeFileSync(
    join(node.folder, "coild-kubeconfig"),
    node.server.kubeconfig({ server: "https://127.0.0.1:6444", token: "coild" }),
  );
  await node.killCoild();
  await node.startCoild(...bed.coildFlags);
  const short = await bed.run("short", EGRESS.name);
  for (const family of FAMILIES) await bed.sees("short", NEAR[family], bed.router[family]);
  await bed.isClean();
  await Promise.all([gate.shut(), routerGate.shut()]);
  await node.api.delete(resources.services, EGRESS);
  const [moved = ""] = await bed.makeService();
  assert.ok(!service.includes(moved));
  const old = await found(bed);
  assert.deepEqual(old.kinds, ["client-lacks", "client-stale-tunnel", "client-surplus"]);
  assert.match(
    old.text,
    new RegExp(
      `^pod default/client has a tunnel to an address that no Service of its Egresses has: link nat_0\\w+ leads to ${service[0]} instead of ${moved} \\(Egress internet/nat\\)`,
      "m",
    ),
  );
  // A pod that goes meanwhile.
  assert.equal((await bed.del("short")).code, 0);
  await node.api.delete(resources.pods, { namespace: "default", name: "short" });
  assert.match(
    (await found(bed)).text,
    new RegExp(
      `router internet/router has a way to what is no client of Egress internet/nat: ${short[4]}, ${short[6]}$`,
      "m",
    ),
  );
  bed.ip(bed.space("router"), "route", "del", "table", "118", short[4]);
  assert.match(
    (await found(bed)).text,
    new RegExp(`has entries of addresses that no pod has: ${short[4]} \\(\\d+\\)$`, "m"),
  );
  bed.ip(bed.space("router"), "route", "add", "table", "118", "blackhole", short[4], "protocol", "30");
  await Promise.all([gate.reopen(), routerGate.reopen()]);
  const { checked } = await bed.isClean();
  assert.equal(checked.egress?.["clients"], 1);
  for (const family of FAMILIES) await bed.sees("client", NEAR[family], bed.router[family]);
});

for (const backend of ["iptables", "nftables"] as const) {
  test(`audit: marks of originatingOnly in ${backend} are compared`, async (t) => {
    const { bed } = await openWhole(t, false, ["--enable-originating-only", `--backend=${backend}`]);
    await bed.isClean();
    inSpace(bed, "client", "iptables", "-w", "-t", "mangle", "-F", "OUTPUT");
    inSpace(bed, "client", "nft", "flush", "table", "ip", "mangle");
    const { kinds, text } = await found(bed);
    assert.deepEqual(kinds, ["client-lacks"]);
    assert.match(
      text,
      /lacks IPv4 rule of the packet filter "coil-input-eth0 mark \d+ original", IPv4 rule of the packet filter "coil-output-eth0/,
    );
  });
}

test("audit: what the credentials may not list is a note, and a cluster without Egresses is none of its faults", async (t) => {
  const { bed } = await openWhole(t, false);
  const { api } = bed.node;
  // Those of coild: no Deployments, endpoints and bindings.
  const limited = await bed.audit("coild-kubeconfig");
  assert.deepEqual(limited.findings, []);
  assert.deepEqual(
    limited.notes.map((note) => /^(.*) are not compared: /.exec(note)?.[1]),
    ["Deployments of Egresses", "endpoints of Egresses", "rights of routers"],
  );
  assert.equal(limited.checked.egress?.["clients"], 1);
  const { rules = [], ...role } = await api.get(resources.clusterRoles, { name: "coild" });
  await api.replace(resources.clusterRoles, {
    ...role,
    rules: rules.filter(({ resources: kinds = [] }) => !kinds.includes("egresses")),
  });
  const without = await bed.audit("coild-kubeconfig");
  assert.deepEqual([without.findings, without.checked.egress], [[], undefined]);
  assert.match(without.notes.join("\n"), /^Egress NAT is not compared: .*egresses.*forbidden/);
  await api.delete(resources.customResourceDefinitions, { name: "egresses.coil.cybozu.com" });
  await until("the type is gone", async () => (await bed.audit()).checked.egress === undefined, { deadlineMs: 10_000 });
  const gone = await bed.audit();
  assert.deepEqual(
    [gone.ok, gone.notes],
    [true, ["Egress NAT is not compared: the cluster has no type Egress (coil.cybozu.com/v2)"]],
  );
});
