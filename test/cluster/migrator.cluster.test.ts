/** The migrator on a real etcd and the embedded API server (docs/spec/pod-network.md#14). */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeBlockSource, NodeIpam } from "#features/ipam";
import { dump, replace } from "#features/migrator";
import { resources } from "#kube/client";
import { coilResources, POOL_ANNOTATION } from "#kube/coil";
import { EtcdServer } from "#test/etcd-server";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";
import { MigratorBed, V1_DATA } from "#test/migrator-bed";

const MIGRATOR = join(ISTHMUS, "../coil-migrator");
const PASSWORD = "p@ss word";
const COILD = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "coild" };
const BLOCKS = ["default-0-v1", "default-9-v1", "web-1-v1"];

function launch(bed: MigratorBed, args: readonly string[], input?: string): Running {
  const env = { COIL_ETCD_PASSWORD: PASSWORD };
  const more = input === undefined ? {} : { input: Buffer.from(input) };
  return start([MIGRATOR, ...args, `--kubeconfig=${bed.kubeconfig}`], { env, ...more });
}

async function succeed(running: Running): Promise<Outcome> {
  const outcome = await running.ended;
  assert.equal(outcome.code, 0, outcome.stderr);
  return outcome;
}

async function bedOf(t: TestContext): Promise<MigratorBed> {
  const bed = await MigratorBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  return bed;
}

/** A cluster of which v1 is gone and whose data are v2's, with pods of v1 and of v2 on both nodes. */
async function migrated(t: TestContext) {
  const bed = await bedOf(t);
  await bed.installCrds();
  await bed.apply((await dumpWith(bed)).manifests);
  await bed.block("default-2", "10.0.0.64/27", "node1", 2);
  for (const [name, node, address] of [
    ["a", "node1", "10.0.0.1"],
    ["b", "node1", "10.2.0.5"],
    ["c", "node2", "10.1.0.33"],
    ["d", "node2", "10.1.0.34"],
  ] as const)
    await bed.pod(name, node, address);
  const kept = new Map([
    ["new", await bed.pod("new", "node1", "10.0.0.65")],
    ["host", await bed.pod("host", "node1", "192.0.2.1", { hostNetwork: true })],
  ]);
  await bed.pod("coild-x", "node1", "192.0.2.1", { hostNetwork: true, labels: COILD, namespace: "kube-system" });
  return { bed, kept };
}

function dumpWith(bed: MigratorBed, data = V1_DATA) {
  const read = async () => Object.entries(data).map(([key, value]) => ({ key, value: Buffer.from(value) }));
  const deps = { api: bed.client, clock: systemClock, log: nullLogger, read };
  return dump(deps, { prefix: "/coil/", uninstall: true, isExport: false });
}

test("dump: reads etcd with TLS, a user and a member that is down, removes v1 and prints what can be applied; again, the same", async (t) => {
  const bed = await bedOf(t);
  await using etcd = await EtcdServer.start({ tls: true });
  // More keys than a page has.
  const fill = Array.from({ length: 1300 }, (_, at) => [`/coil/subnet/10.${at >> 8}.${at & 255}.0`, ""] as const);
  await etcd.put({ ...V1_DATA, ...Object.fromEntries(fill) });
  await etcd.authenticate("coil", PASSWORD, "/coil/");
  const [endpoint = "", ...tls] = etcd.flags;
  const down = endpoint.replace("=", "=https://127.0.0.1:1,");
  const args = ["dump", down, ...tls, "--etcd-username=coil"];
  const first = await succeed(launch(bed, args));
  assert.deepEqual(await bed.v1Objects(), []);
  const web = await bed.client.get(resources.namespaces, { name: "web" });
  assert.equal(web.metadata.annotations?.[POOL_ANNOTATION], "web");
  assert.match(first.stderr, /deleted.*DaemonSet kube-system\/coil-node/);
  assert.match(first.stderr, /there is no pool lost; block 10\.9\.0\.0\/27 of node node1 is not converted/);
  assert.match(first.stderr, /there is no Node gone; its block 10\.0\.0\.32\/27 is not converted/);
  const again = await succeed(launch(bed, args));
  assert.equal(again.stdout, first.stdout);
  await bed.installCrds();
  assert.deepEqual(await bed.apply(first.stdout), ["default", "web", ...BLOCKS]);
  const block = await bed.client.get(coilResources.addressBlocks, { name: "default-9-v1" });
  assert.deepEqual([block.index, block.ipv4], [9, "10.1.0.32/27"]);
  const wrong = await launch(bed, [...args, "--etcd-password=wrong"]).ended;
  assert.deepEqual([wrong.code, wrong.stdout], [1, ""]);
  assert.match(wrong.stderr, /authentication failed.*check --etcd-username, --etcd-password/);
  const missing = await launch(bed, ["dump", endpoint, ...tls]).ended;
  assert.deepEqual([missing.code, missing.stdout], [1, ""]);
});

test("dump: an export of etcdctl gives the same as etcd, also from standard input", async (t) => {
  const bed = await bedOf(t);
  await using etcd = await EtcdServer.start({ tls: false });
  await etcd.put(V1_DATA);
  const text = await etcd.ctl(["get", "--prefix", "/coil/", "-w", "json"]);
  const file = join(etcd.folder, "export.json");
  writeFileSync(file, text);
  const stale = await launch(bed, ["dump", `--input-file=${file}`]).ended;
  assert.deepEqual([stale.code, stale.stdout], [1, ""]);
  assert.match(stale.stderr, /v1 is deleted now: make the export again/);
  const live = await succeed(launch(bed, ["dump", ...etcd.flags]));
  const fromFile = await succeed(launch(bed, ["dump", `--input-file=${file}`]));
  const fromInput = await succeed(launch(bed, ["dump", "--input-file=-"], text));
  assert.equal(fromFile.stdout, live.stdout);
  assert.equal(fromInput.stdout, live.stdout);
});

test("dump: faulty data change nothing, and every fault is listed with its key", async (t) => {
  const bed = await bedOf(t);
  const before = await bed.v1Objects();
  await using etcd = await EtcdServer.start({ tls: false });
  const nodes = { node1: ["10.7.0.0/27"] };
  await etcd.put({ ...V1_DATA, "/coil/pool/bad": "{", "/coil/block/default/10.0.0.0": JSON.stringify({ nodes }) });
  const { code, stdout, stderr } = await launch(bed, ["dump", ...etcd.flags]).ended;
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /\/coil\/pool\/bad: its value is not JSON/);
  assert.match(
    stderr,
    /\/coil\/block\/default\/10\.0\.0\.0: block 10\.7\.0\.0\/27 of node node1 is in no subnet of its pool/,
  );
  assert.deepEqual(await bed.v1Objects(), before);
});

test("dump: killed while it removes v1, it is finished by the next run", async (t) => {
  const bed = await bedOf(t);
  await using etcd = await EtcdServer.start({ tls: false });
  await etcd.put(V1_DATA);
  const slow = { match: { verb: "delete" }, action: { latencyMs: 300 } };
  bed.server.faults.add(slow);
  const running = launch(bed, ["dump", ...etcd.flags]);
  await until("something is deleted", () => running.said().includes("deleted"));
  running.child.kill("SIGKILL");
  assert.equal((await running.ended).stdout, "");
  assert.notEqual((await bed.v1Objects()).length, 0);
  bed.server.faults.clear();
  const { stdout } = await succeed(launch(bed, ["dump", ...etcd.flags]));
  assert.match(stdout, /default-9-v1/);
  assert.deepEqual(await bed.v1Objects(), []);
});

test("dump: --skip-uninstall leaves v1; settings and account of an installed v2 stay", async (t) => {
  const bed = await bedOf(t);
  await using etcd = await EtcdServer.start({ tls: false });
  await etcd.put(V1_DATA);
  const before = await bed.v1Objects();
  await succeed(launch(bed, ["dump", "--skip-uninstall", ...etcd.flags]));
  assert.deepEqual(await bed.v1Objects(), before);
  await bed.addDaemonSet("coild");
  await succeed(launch(bed, ["dump", ...etcd.flags]));
  assert.deepEqual(await bed.v1Objects(), ["ConfigMap coil-config", "ServiceAccount coil-controller"]);
});

test("dump: faults of the API server are overcome", async (t) => {
  const bed = await bedOf(t);
  const { manifests } = await dumpWith(bed);
  await bed.installV1();
  const body = { metadata: { annotations: { [POOL_ANNOTATION]: null } } };
  await bed.client.patch(resources.namespaces, { name: "web" }, { type: "merge", body });
  for (const [resource, verb, action] of [
    ["daemonsets", "delete", { status: 500 }],
    ["deployments", "delete", { cut: "lost-response" }],
    ["clusterroles", "delete", { status: 409 }],
    ["serviceaccounts", "get", { cut: "drop-connection" }],
    ["namespaces", "patch", { status: 503 }],
    ["nodes", "list", { status: 429 }],
  ] as const)
    bed.server.faults.add({ match: { resource, verb, times: 2 }, action });
  assert.deepEqual(await dumpWith(bed), { manifests, failures: [] });
  assert.deepEqual(await bed.v1Objects(), []);
});

test("dump: what it prints is honoured by v2: blocks are carved around it, its prefixes are exported, no address of it is given out", async (t) => {
  const bed = await bedOf(t);
  await bed.installCrds();
  await bed.apply((await dumpWith(bed)).manifests);
  const nowhere = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0", "--webhook-addr=none"];
  const flags = [...nowhere, `--kubeconfig=${bed.kubeconfig}`];
  const controller = start([join(ISTHMUS, "../coil-ipam-controller"), ...flags]);
  t.after(async () => {
    controller.child.kill("SIGTERM");
    await controller.ended;
  });
  const deps = { log: nullLogger, clock: systemClock, onBlocksChanged: () => undefined };
  const source = new KubeBlockSource({ api: bed.client, log: nullLogger }, { nodeName: "node1" });
  const ipam = new NodeIpam({ ...deps, source }, { collectIntervalMs: 60_000, releaseDelayMs: 0 });
  const { signal } = t;
  assert.equal(await ipam.collect({ signal }), 0);
  assert.deepEqual(ipam.prefixes.map(String).sort(), ["10.0.0.0/27", "10.2.0.4/30"]);
  const blocks: string[] = [];
  // The pool web has four blocks of four addresses, of which the second is reserved.
  for (let at = 0; at < 12; at += 1)
    blocks.push((await ipam.allocate("web", { containerId: `c${at}`, ifname: "eth0" }, { signal })).block);
  assert.deepEqual([...new Set(blocks)], ["web-0", "web-2", "web-3"]);
  await assert.rejects(ipam.allocate("web", { containerId: "last", ifname: "eth0" }, { signal }), {
    code: "exhausted",
  });
  await replace({ api: bed.client, clock: systemClock, log: nullLogger }, { intervalMs: 1 });
  const { block } = await ipam.allocate("web", { containerId: "last", ifname: "eth0" }, { signal });
  assert.equal(block, "web-1");
});

test("replace: pods of v1, reserved blocks and coild's pods go; killed in the middle, the next run goes on", async (t) => {
  const { bed, kept } = await migrated(t);
  const running = launch(bed, ["replace", "--yes", "--interval=60s"]);
  await until("a node is done, and the pause runs", async () => !(await bed.pods()).has("b"));
  running.child.kill("SIGKILL");
  await running.ended;
  assert.ok((await bed.pods()).has("d"));
  assert.deepEqual(await bed.blocks(), ["default-0-v1", "default-2", "default-9-v1", "web-1-v1"]);
  kept.set("a", await bed.pod("a", "node1", "10.0.0.66"));
  await succeed(launch(bed, ["replace", "--yes", "--interval=1ms"]));
  assert.deepEqual(await bed.pods(), kept);
  assert.deepEqual(await bed.blocks(), ["default-2"]);
  await succeed(launch(bed, ["replace", "--yes"]));
  assert.deepEqual(await bed.pods(), kept);
});

test("replace: asks, and changes nothing without a yes", async (t) => {
  const { bed } = await migrated(t);
  const before = await bed.pods();
  for (const answer of ["n\n", "", "\n"]) {
    const { code, stderr } = await launch(bed, ["replace"], answer).ended;
    assert.equal(code, 1);
    assert.match(stderr, /Delete every pod of Coil v1 on http:\/\/127\.0\.0\.1:\d+, node by node\? y\/N /);
  }
  assert.deepEqual(await bed.pods(), before);
  await succeed(launch(bed, ["replace", "--interval=1ms"], "y\n"));
  assert.deepEqual(await bed.blocks(), ["default-2"]);
});

test("replace: a stuck pod keeps the blocks of its node, is listed, and is overcome by a later run", async (t) => {
  const { bed, kept } = await migrated(t);
  bed.stuck.add("a");
  const deps = { api: bed.client, clock: systemClock, log: nullLogger };
  const failures = await replace(deps, { intervalMs: 1, podLimitMs: 500 });
  assert.match(
    failures[0] ?? "",
    /^cannot delete Pod default\/a: Pod default\/a still exists after 0\.5 s: the pod has not ended$/,
  );
  assert.match(
    failures[1] ?? "",
    /^AddressBlock default-0-v1 is kept, because pods still have addresses of it: default\/a; /,
  );
  assert.match(failures[2] ?? "", /^AddressBlock web-1-v1 is kept/);
  assert.equal(failures.length, 3);
  assert.deepEqual(await bed.blocks(), ["default-0-v1", "default-2", "web-1-v1"]);
  bed.stuck.delete("a");
  assert.deepEqual(await replace(deps, { intervalMs: 1 }), []);
  assert.deepEqual(await bed.pods(), kept);
  assert.deepEqual(await bed.blocks(), ["default-2"]);
});

test("replace: a pod that is starting is not replaced when its address is v2's, and when it is v1's it is", async (t) => {
  const { bed, kept } = await migrated(t);
  kept.set("fresh", await bed.pod("fresh", "node2", ""));
  await bed.pod("late", "node2", "");
  const lines: string[] = [];
  const log = { ...nullLogger, info: (text: string): unknown => lines.push(text) };
  const replacing = replace({ api: bed.client, clock: systemClock, log }, { intervalMs: 1 });
  await until("it waits for their addresses", () => lines.some((line) => line.startsWith("waiting for the addresses")));
  await bed.setAddress({ namespace: "default", name: "fresh" }, "10.0.0.67");
  await bed.setAddress({ namespace: "default", name: "late" }, "10.1.0.35");
  assert.deepEqual(await replacing, []);
  assert.deepEqual(await bed.pods(), kept);
  assert.deepEqual(await bed.blocks(), ["default-2"]);
});

test("replace: a pod that gets no address is listed and keeps the blocks of its node, because it may be one of v1", async (t) => {
  const { bed, kept } = await migrated(t);
  kept.set("stays", await bed.pod("stays", "node2", ""));
  const deps = { api: bed.client, clock: systemClock, log: nullLogger };
  const failures = await replace(deps, { intervalMs: 1, addressLimitMs: 50 });
  assert.match(failures[0] ?? "", /^Pod default\/stays has no address yet, .*: run replace again$/);
  assert.match(failures[1] ?? "", /^AddressBlock default-9-v1 is kept, .*: default\/stays; /);
  assert.equal(failures.length, 2);
  assert.deepEqual(await bed.pods(), kept);
  assert.deepEqual(await bed.blocks(), ["default-2", "default-9-v1"]);
  await bed.setAddress({ namespace: "default", name: "stays" }, "10.0.0.68");
  assert.deepEqual(await replace(deps, { intervalMs: 1 }), []);
  assert.deepEqual(await bed.pods(), kept);
});

test("replace: faults of the API server are overcome, and a finalizer of Coil on a reserved block too", async (t) => {
  const { bed, kept } = await migrated(t);
  const body = { metadata: { finalizers: ["coil.cybozu.com"] } };
  await bed.client.patch(coilResources.addressBlocks, { name: "web-1-v1" }, { type: "merge", body });
  for (const [resource, verb, action] of [
    ["nodes", "list", { status: 503 }],
    ["pods", "delete", { cut: "lost-response" }],
    ["pods", "delete", { status: 500 }],
    ["addressblocks", "delete", { status: 409 }],
    ["addressblocks", "patch", { status: 500 }],
    ["addressblocks", "get", { cut: "drop-connection" }],
  ] as const)
    bed.server.faults.add({ match: { resource, verb, times: 2 }, action });
  const deps = { api: bed.client, clock: systemClock, log: nullLogger };
  assert.deepEqual(await replace(deps, { intervalMs: 1 }), []);
  assert.deepEqual(await bed.pods(), kept);
  assert.deepEqual(await bed.blocks(), ["default-2"]);
});

test("coil-migrator: wrong command lines are named, with exit code 2", async (t) => {
  const bed = await bedOf(t);
  for (const [args, pattern] of [
    [[], /a command is missing: the command must be dump or replace/],
    [["undo"], /unexpected "undo"/],
    [["dump", "--etcd-endpoints=ftp://x"], /--etcd-endpoints: "ftp:\/\/x" is not a URL/],
    [["dump", "--etcd-tls-cert=x"], /--etcd-tls-cert and --etcd-tls-key: give both or neither/],
    [["dump", "--etcd-prefix=/"], /--etcd-prefix: "\/" cannot be the prefix/],
    [["dump", "--input-file=/nowhere"], /--input-file: cannot read \/nowhere/],
  ] as const) {
    const { code, stderr } = await launch(bed, args).ended;
    assert.equal(code, 2, stderr);
    assert.match(stderr, pattern);
  }
});
