/** `isthmus status` as an operator runs it: an API server, pods that are real programs, and faults of all three. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { findObject, isKubeError, KubeClient, resources, staticConnection } from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import { type ApiServer, type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, isthmus, type Running, start, until } from "#test/lab";

const root = join(import.meta.dirname, "../..");
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { readonly version: string };
const folder = mkdtempSync(join(tmpdir(), "status-"));
let server: ApiServer;
let controller: Running | undefined;
const silent = createServer(() => undefined);

/** A user with every right of the page but pods/proxy and nodes. */
const BOB = { name: "bob", groups: [] };
const kubeconfigOf = (token: string): string => join(folder, token);

function pod(name: string, program: string, args: readonly string[], status: object = {}): SeedObject {
  const ready = {
    name: program,
    ready: true,
    restartCount: 0,
    image: "isthmus:0.0.9",
    imageID: "",
    state: { running: {} },
  };
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace: "kube-system", labels: { "app.kubernetes.io/name": "coil" } },
    spec: {
      nodeName: "node1",
      containers: [{ name: program, image: "isthmus:0.0.9", command: [program], args: [...args] }],
    },
    status: { phase: "Running", podIP: "127.0.0.1", containerStatuses: [{ ...ready, ...status }] },
  };
}

before(async () => {
  await once(silent.listen(0, "127.0.0.1"), "listening");
  server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: { root: { name: "admin", groups: ["system:masters"] }, bob: BOB },
    kubelets: {
      tls: { ca: "", cert: "", key: "" },
      connect: async ({ host, port }) => {
        const socket = connect(port, host);
        await once(socket, "connect");
        return socket;
      },
    },
    log: nullLogger,
    clock: systemClock,
  });
  for (const token of ["root", "bob"]) writeFileSync(kubeconfigOf(token), server.kubeconfig({ token }));
  const silentPort = (silent.address() as AddressInfo).port;
  const [metrics, health] = [19_386, 19_387];
  const addresses = [`--metrics-addr=127.0.0.1:${metrics}`, `--health-addr=127.0.0.1:${health}`];
  const pool = { blockSizeBits: 4, subnets: [{ ipv4: "10.0.0.0/24" }] };
  await using api = new KubeClient(staticConnection({ server: server.urls[0] ?? "", token: "root" }), {
    clock: systemClock,
  });
  for (const crd of coilCrds) await api.create(resources.customResourceDefinitions, crd as never);
  await until("the types are served", () =>
    api.list(coilResources.egresses).then(
      () => true,
      (error) => !isKubeError(error, "not-found"),
    ),
  );
  server.seed([
    {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: "node1" },
      status: { conditions: [{ type: "Ready", status: "True" }], nodeInfo: { kubeletVersion: "v1.34.1" } },
    },
    { apiVersion: "coil.cybozu.com/v2", kind: "AddressPool", metadata: { name: "default" }, spec: pool },
    // The pod is the controller that runs below; the second one never answers.
    pod("controller", "coil-ipam-controller", [`--metrics-addr=:${metrics}`, `--health-addr=:${health}`]),
    pod("silent", "coil-router", [`--metrics-addr=:${silentPort}`, `--health-addr=:${silentPort}`]),
    pod("waits", "coild", [], { ready: false, state: { waiting: { reason: "ImagePullBackOff" } } }),
    {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { name: "e", namespace: "default" },
      type: "Warning",
      reason: "Conflict",
      note: "another program removes routes",
      reportingController: "coild",
      reportingInstance: "node1",
      action: "Repair",
      eventTime: "2026-11-25T00:00:00.000000Z",
      regarding: { kind: "Node", name: "node1" },
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "some" },
      rules: [{ apiGroups: ["*"], resources: ["pods", "leases", "addresspools", "addressblocks"], verbs: ["list"] }],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: "some" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "some" },
      subjects: [{ kind: "User", name: "bob", apiGroup: "rbac.authorization.k8s.io" }],
    },
  ]);
  controller = start([
    ISTHMUS,
    "coil-ipam-controller",
    `--kubeconfig=${kubeconfigOf("root")}`,
    "--webhook-addr=none",
    ...addresses,
  ]);
  await until("the controller leads", async () => {
    const lease = { namespace: "kube-system", name: "coil-ipam-leader" };
    return (await findObject(api, resources.leases, lease)) !== undefined;
  });
});

after(async () => {
  controller?.child.kill("SIGTERM");
  await controller?.ended;
  silent.closeAllConnections();
  silent.close();
  await server.stop();
  rmSync(folder, { recursive: true });
});

interface Status {
  readonly ready: boolean;
  readonly programs: readonly { readonly program: string; readonly version: string; readonly asked: number }[];
  readonly notReady: { readonly rows: readonly { readonly name: string; readonly why: string }[] };
  readonly pools: { readonly rows: readonly { readonly name: string; readonly maxBlocks: number }[] };
  readonly leaders: { readonly rows: readonly { readonly isStale: boolean }[] };
  readonly errors: { readonly rows: readonly { readonly reason: string }[] };
  readonly notRead: readonly { readonly what: string; readonly why: string }[];
}

/** `isthmus status` without the processes of this machine: other tests run programs in its network namespace. */
const ALONE = ["unshare", "--pid", "--fork", "--mount-proc", ISTHMUS, "status"] as const;

async function statusOf(token: string): Promise<{ readonly code: number | null; readonly status: Status }> {
  const { code, stdout, stderr } = await start([...ALONE, `--kubeconfig=${kubeconfigOf(token)}`, "--json"]).ended;
  assert.equal(stderr, "");
  return { code, status: JSON.parse(stdout) as Status };
}

test("status: versions and readiness of programs that answer through the API server; one that is silent holds nothing up", async () => {
  const { code, status } = await statusOf("root");
  assert.equal(code, 1, "a pod waits");
  assert.deepEqual(
    status.programs.map(({ program, version, asked }) => [program, version, asked]),
    [
      ["coil-ipam-controller", version, 1],
      ["coil-router", "0.0.9", 0],
      ["coild", "0.0.9", 0],
    ],
    "the answer has the version of the program, which is not the image's",
  );
  assert.deepEqual(
    status.notReady.rows.map(({ name, why }) => [name, why]),
    [["kube-system/waits", "ImagePullBackOff"]],
  );
  assert.deepEqual(
    status.leaders.rows.map(({ isStale }) => isStale),
    [false],
  );
  assert.deepEqual([status.pools.rows[0]?.name, status.pools.rows[0]?.maxBlocks], ["default", 16]);
  assert.deepEqual(
    status.errors.rows.map(({ reason }) => reason),
    ["Conflict"],
  );
  assert.match(JSON.stringify(status.notRead), /kube-system\/silent: .*no complete answer came .* in 3000 ms/);
});

test("status: rights that are missing are named, each once; without the Pods it is not ready", async () => {
  const { code, status } = await statusOf("bob");
  assert.equal(code, 1);
  const why = status.notRead.map(({ what, why: text }) => `${what}: ${text}`).join("\n");
  assert.match(why, /^Nodes: .*User "bob" cannot list resource "nodes"/m);
  assert.match(why, /cannot get resource "pods\/proxy"/);
  assert.equal(why.match(/coil-ipam-controller|controller: /g)?.length ?? 0, 1, why);
});

test("status: the text is one screen; --watch draws it again and ends at SIGINT; a server that is away is an error at once", async () => {
  const { stdout } = await start([...ALONE, `--kubeconfig=${kubeconfigOf("root")}`]).ended;
  assert.match(stdout, new RegExp(`^coil-ipam-controller +${version.replaceAll(".", "\\.")} +1/1 +1 +0 +1/1$`, "m"));
  assert.match(stdout, /^kube-system\/coil-ipam-leader .* s ago$/m);
  assert.ok(stdout.split("\n").length < 40, stdout);
  const watching = start([ISTHMUS, "status", "--watch=1", `--kubeconfig=${kubeconfigOf("root")}`]);
  await until("two screens", () => watching.printed().split("PROGRAM  ").length > 2);
  watching.child.kill("SIGINT");
  assert.deepEqual([(await watching.ended).code, watching.said()], [0, ""]);
  const away = join(folder, "away");
  writeFileSync(away, server.kubeconfig({ token: "root" }).replaceAll(/127\.0\.0\.1:\d+/g, "127.0.0.1:1"));
  const before = performance.now();
  const { code, stderr } = await isthmus(["status", `--kubeconfig=${away}`]);
  assert.equal(code, 1);
  assert.match(stderr, /^isthmus status: Cannot GET \/version: 127\.0\.0\.1:1 did not answer: .*ECONNREFUSED.*\n$/);
  assert.ok(performance.now() - before < 5000);
  // One that takes the connection and says nothing.
  const { port } = silent.address() as AddressInfo;
  writeFileSync(away, server.kubeconfig({ token: "root" }).replaceAll(/127\.0\.0\.1:\d+/g, `127.0.0.1:${port}`));
  const mute = await isthmus(["status", `--kubeconfig=${away}`]);
  assert.equal(mute.code, 1);
  assert.match(
    mute.stderr,
    /^isthmus status: Cannot GET \/version: no complete answer came from \S+ in 5000 ms: .*\n$/,
  );
});

test("status: hundreds of programs that never answer hold the screen up for seconds only, and are counted", async () => {
  const port = `:${(silent.address() as AddressInfo).port}`;
  const flags = [`--metrics-addr=${port}`, `--health-addr=${port}`];
  server.seed(Array.from({ length: 300 }, (_, at) => pod(`many-${at}`, "coild", flags)));
  const before = performance.now();
  const { code, status } = await statusOf("root");
  assert.equal(code, 1);
  assert.equal(status.programs.find(({ program }) => program === "coil-ipam-controller")?.asked, 1);
  assert.match(JSON.stringify(status.notRead), /answers of \d{3} ready programs/);
  assert.ok(performance.now() - before < 20_000);
});
