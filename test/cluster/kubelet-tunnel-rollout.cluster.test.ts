// alone: it counts dials that fail, and two kubelets with their pods keep the processor busy
/**
 * The DaemonSets of `deploy/tunnel.yaml` under real kubelets, with a real kube-apiserver as the frontend: what a replaced or killed
 * `proxy-server` costs new dials, while a client holds a connection. The tests share one cluster and are in the order of its life.
 */
import assert from "node:assert/strict";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import { stringify } from "yaml";
import { makeCertificates } from "#test/certificates";
import { ADDRESSES, type KubeletNode, kill, spawnLogged } from "#test/kubelet-node";
import { importSuite, pods, rolledOut, SETTLE_MS, type SeenPod, TIMEOUT } from "#test/kubelet-pods";
import { BOX } from "#test/kubelet-runtime";
import { ADMIN, Kubelets, kubeletsMissing } from "#test/kubelets";
import { type Running, start, until } from "#test/lab";

const root = join(import.meta.dirname, "../..");
const AT = ADDRESSES[4];
const PORT = 8080;
/** Dials before and after something is done. */
const ENOUGH = 20;
const { ca, pairs } = makeCertificates("tunnel", { server: [AT.n1], agent: [] });

let bed: Kubelets | undefined;
const cluster = (): Kubelets => {
  assert.ok(bed !== undefined, "the cluster has started");
  return bed;
};

/** Node n1 is the machine of `proxy-server`; an agent is on n2. */
function prepareNode(node: KubeletNode): readonly string[] {
  const files = {
    "server.crt": pairs.server.cert,
    "server.key": pairs.server.key,
    "agents-ca.crt": ca,
    "agent.crt": pairs.agent.cert,
    "agent.key": pairs.agent.key,
    "servers-ca.crt": ca,
  };
  for (const [name, text] of Object.entries(files)) node.put(`etc/isthmus/tunnel/${name}`, text);
  return [];
}

/** Serves on n2's own network, since these nodes have no pod network. */
const SERVER = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "web" },
  spec: {
    hostNetwork: true,
    nodeName: "n2",
    terminationGracePeriodSeconds: 1,
    tolerations: [{ operator: "Exists" }],
    containers: [
      {
        name: "web",
        image: BOX,
        command: [
          "/bin/busybox",
          "sh",
          "-c",
          `echo web >/www/index.html; busybox httpd -p ${PORT} -h /www; while :; do busybox sleep 1; done`,
        ],
      },
    ],
  },
};

/** A request through kube-apiserver to a server that closes, so that each is a dial: a line with its start, its milliseconds and its outcome. */
const ASK = `const { request } = require("node:https");
const [host, token] = process.argv.slice(1);
setInterval(() => {
  const startedAt = Date.now();
  const end = (outcome) => console.log(startedAt, Date.now() - startedAt, outcome);
  const headers = { authorization: "Bearer " + token };
  const path = "/api/v1/namespaces/default/pods/web:${PORT}/proxy/index.html";
  request({ host, port: 6443, path, headers, agent: false, rejectUnauthorized: false, timeout: 10000 }, (response) => {
    response.resume().once("end", () => end(response.statusCode));
  }).once("timeout", function () { this.destroy(); }).once("error", ({ code, message }) => end(code ?? message)).end();
}, 100);`;

interface Dial {
  readonly startedAt: number;
  readonly tookMs: number;
  readonly outcome: string;
}

/** Dials all the time. */
class Dials implements AsyncDisposable {
  readonly #file: string;
  readonly #child: ReturnType<typeof spawnLogged>;

  constructor(on: Kubelets) {
    this.#file = join(on.folder, `dials-${Date.now()}`);
    this.#child = spawnLogged(
      [...on.outside, process.execPath, "--eval", ASK, on.address, ADMIN],
      openSync(this.#file, "a"),
    );
  }

  get all(): readonly Dial[] {
    return readFileSync(this.#file, "utf8")
      .split("\n")
      .slice(0, -1)
      .map((line) => {
        const [startedAt, tookMs, ...outcome] = line.split(" ");
        return { startedAt: Number(startedAt), tookMs: Number(tookMs), outcome: outcome.join(" ") };
      });
  }

  /** Resolves when so many more have succeeded. */
  async more(): Promise<void> {
    const count = (): number => this.all.filter(({ outcome }) => outcome === "200").length;
    const start = count();
    await until("dials succeed", () => count() >= start + ENOUGH, { deadlineMs: SETTLE_MS });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return kill(this.#child);
  }
}

/** Prints a summary of dials for a test's reader: the number of failures, and the longest time in which none succeeded. */
function report(t: TestContext, dials: readonly Dial[]): readonly Dial[] {
  const ends = dials
    .filter(({ outcome }) => outcome === "200")
    .map(({ startedAt, tookMs }) => startedAt + tookMs)
    .sort((one, other) => one - other);
  const gaps = ends.slice(1).map((at, index) => at - (ends[index] ?? at));
  const failed = dials.filter(({ outcome }) => outcome !== "200");
  const outcomes = new Map<string, number>();
  for (const { outcome } of failed) outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  t.diagnostic(
    `${dials.length} dials, ${failed.length} failed ${JSON.stringify([...outcomes])}; longest without one: ${Math.max(...gaps)} ms; slowest: ${Math.max(...dials.map(({ tookMs }) => tookMs))} ms`,
  );
  return failed;
}

/** A connection to n2's kubelet that stays: what is written to it comes back. */
function hold(): Running {
  const script = "while :; do echo held; busybox sleep 0.2; done";
  return start(
    [...cluster().outside, ...cluster().argvOfKubectl, "exec", "web", "--", "/bin/busybox", "sh", "-c", script],
    {
      env: { KUBECONFIG: cluster().kubeconfig, HOME: cluster().folder },
      timeoutMs: 300_000,
    },
  );
}

const servers = () => pods(cluster(), "--namespace=kube-system", "--selector=app.kubernetes.io/name=proxy-server");

describe("kubelet, proxy-server is replaced", { skip: kubeletsMissing() }, () => {
  const closers = new AsyncDisposableStack();
  before(async () => {
    bed = closers.use(await Kubelets.start({ prepareNode }));
    await importSuite(bed);
  });
  after(() => closers.disposeAsync());

  test("kubelet: kube-apiserver reaches nodes by the DaemonSets of deploy/tunnel.yaml", async () => {
    await cluster().kubectl("label", "node", "n1", "node-role.kubernetes.io/control-plane=");
    const manifest = readFileSync(join(root, "deploy/tunnel.yaml"), "utf8");
    await cluster().apply(manifest.replaceAll("control-plane.example", AT.n1));
    for (const one of ["proxy-server", "proxy-agent"]) await rolledOut(cluster(), `daemonset/${one}`);
    await cluster().apply(stringify(SERVER));
    await cluster().kubectl("wait", "--for=condition=Ready", "pod/web", TIMEOUT);
    const selector = join(cluster().folder, "egress-selector.yaml");
    const config = readFileSync(join(root, "deploy/tunnel/egress-selector.yaml"), "utf8");
    writeFileSync(selector, config.replace("udsName: ", `udsName: ${cluster().node("n1").root}`));
    await cluster().restartApi([`--egress-selector-config-file=${selector}`]);
    await using dials = new Dials(cluster());
    await dials.more();
    const metrics = await cluster().kubectl("get", "--raw", "/metrics");
    const started = /^apiserver_egress_dialer_dial_start_total\{.*\} (\d+)$/m.exec(metrics)?.[1];
    assert.ok(Number(started) >= ENOUGH, `each request is a dial: ${started}`);
  });

  test("kubelet: a rollout of proxy-server fails no dial, and connections that are held go on", async (t) => {
    await using dials = new Dials(cluster());
    const held = hold();
    await until("it is held", () => held.printed().includes("held"));
    await dials.more();
    const [old] = await servers();
    assert.ok(old !== undefined);
    await cluster().kubectl("--namespace=kube-system", "rollout", "restart", "daemonset/proxy-server");
    const former = async (): Promise<SeenPod | undefined> =>
      (await servers()).find(({ metadata }) => metadata.uid === old.metadata.uid);
    const isEnding = async (): Promise<boolean> => (await former())?.metadata.deletionTimestamp !== undefined;
    await until("the former pod is told to end", isEnding, { deadlineMs: SETTLE_MS, everyMs: 200 });
    // The other one has the socket then.
    await dials.more();
    assert.ok(await isEnding(), "the former pod is there because of what is held");
    const heard = held.printed().length;
    await until("what is held goes on", () => held.printed().length > heard);
    await rolledOut(cluster(), "daemonset/proxy-server");
    await until("the former pod has ended", async () => (await former()) === undefined, {
      deadlineMs: SETTLE_MS,
      everyMs: 500,
    });
    await dials.more();
    assert.deepEqual(report(t, dials.all), []);
    held.child.kill("SIGKILL");
  });

  test("kubelet: a proxy-server that is killed is started again, and is dialled again with a connection held", async (t) => {
    await using dials = new Dials(cluster());
    const held = hold();
    await until("it is held", () => held.printed().includes("held"));
    await dials.more();
    const [server] = await servers();
    const id = server?.status.containerStatuses?.[0]?.containerID?.replace("containerd://", "") ?? "";
    await cluster().node("n1").run("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", id);
    await until("it runs again", async () => (await servers())[0]?.status.containerStatuses?.[0]?.restartCount === 1, {
      deadlineMs: SETTLE_MS,
      everyMs: 200,
    });
    await dials.more();
    const failed = report(t, dials.all);
    assert.ok(
      failed.every(({ outcome }) => /^\d+$/.test(outcome)),
      "no dial hangs",
    );
    // Its server is gone.
    await held.ended;
  });
});
