/** The accounts that may read metrics of a shipped program with --metrics-authorization, by the rights of the manifest (docs/security.md). */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { coilCrds } from "#kube/coil";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, start, until } from "#test/lab";
import { freePort } from "#test/ports";

/** The program's own rights, and those to ask about scrapers. */
const RIGHTS = ["pods/rbac.yaml", "metrics/rbac.yaml"].map((file) => join(import.meta.dirname, "../../deploy", file));
const ACCOUNTS = ["system:serviceaccounts", "system:authenticated"];
const account = (name: string) => ({ name: `system:serviceaccount:${name}`, groups: ACCOUNTS });

/** The status of an answer; 0 without one. */
async function status(port: number, path: string, token?: string): Promise<number> {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { headers }).catch(() => undefined);
  await answer?.arrayBuffer();
  return answer?.status ?? 0;
}

test("--metrics-authorization: the scraper whose account may get /metrics reads them, others do not, nor anybody while the API server is away; health is open", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-authorization-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const reviewed = (name: string) => ({ user: account(name), audiences: ["https://kubernetes.default.svc"] });
  const api = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: { program: account("kube-system:coil-ipam-controller") },
    reviewedTokens: new Map([
      ["scraper", reviewed("monitoring:prometheus")],
      ["pod", reviewed("default:default")],
      ["late", reviewed("monitoring:prometheus")],
    ]),
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => api[Symbol.asyncDispose]());
  api.seed(coilCrds as unknown as readonly SeedObject[]);
  await api.settled();
  for (const file of RIGHTS)
    api.seed(parseAllDocuments(readFileSync(file, "utf8")).map((one) => one.toJS() as SeedObject));
  const group = "rbac.authorization.k8s.io";
  api.seed([
    {
      ...{ apiVersion: `${group}/v1`, kind: "ClusterRoleBinding", metadata: { name: "prometheus" } },
      roleRef: { apiGroup: group, kind: "ClusterRole", name: "isthmus-metrics-reader" },
      subjects: [{ kind: "ServiceAccount", name: "prometheus", namespace: "monitoring" }],
    },
  ]);
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, api.kubeconfig());
  const [metrics, health] = [await freePort(), await freePort()];
  const running = start([
    ...[ISTHMUS, "coil-ipam-controller", `--kubeconfig=${kubeconfig}`, "--webhook-addr=none"],
    ...[`--metrics-addr=127.0.0.1:${metrics}`, `--health-addr=127.0.0.1:${health}`, "--metrics-authorization"],
  ]);
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  let isServing = false;
  const ask = async (): Promise<void> => {
    isServing = (await status(health, "/healthz")) === 200;
  };
  await until(
    "it serves",
    () => {
      void ask();
      return isServing;
    },
    { seen: running.said },
  );
  const seen = async (...tokens: readonly (string | undefined)[]): Promise<readonly number[]> => {
    const answers: number[] = [];
    for (const token of tokens) answers.push(await status(metrics, "/metrics", token));
    return answers;
  };
  assert.deepEqual(await seen(undefined, "nobody's", "pod", "scraper"), [401, 401, 403, 200], running.said());
  await api.stop();
  // What is known is known for a minute; the others are not let in.
  assert.deepEqual(await seen("scraper", "late", undefined), [200, 503, 401], running.said());
  assert.equal(await status(health, "/healthz"), 200);
  assert.match(running.said(), /nobody reads metrics while it is not known who may/);
  assert.doesNotMatch(running.said(), /late|scraper/);
});

test("--metrics-authorization: proxy-agent without access to an API server says so and ends, and with it asks on both ports", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-authorization-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const api = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    reviewedTokens: new Map([["root", { user: { name: "root", groups: ["system:masters"] }, audiences: ["a"] }]]),
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => api[Symbol.asyncDispose]());
  const [health, admin] = [await freePort(), await freePort()];
  const argv = [
    ...[ISTHMUS, "proxy-agent", "--proxy-server-host=127.0.0.1", "--proxy-server-port=1", "--metrics-authorization"],
    ...[`--health-server-port=${health}`, `--admin-server-port=${admin}`, "--enable-profiling"],
  ];
  const lost = await start(argv, { env: { HOME: folder, KUBECONFIG: "" } }).ended;
  assert.notEqual(lost.code, 0);
  assert.match(lost.stderr, /kubeconfig/i);
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, api.kubeconfig());
  const running = start([...argv, `--kubeconfig=${kubeconfig}`]);
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  await until("it serves", () => running.said().includes('"started"'), { seen: running.said });
  for (const [port, path] of [
    [health, "/metrics"],
    [admin, "/debug/pprof/"],
  ] as const)
    assert.deepEqual([await status(port, path), await status(port, path, "root")], [401, 200], path);
  assert.equal(await status(health, "/healthz"), 200);
});
