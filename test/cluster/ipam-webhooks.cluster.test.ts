/** The admission webhooks of `coil-ipam-controller`, and `isthmus validate`: the shipped program, called as an API server calls it. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { type Draft, KubeClient, type KubeObject, loadKubeConfig, type ResourceType, resources } from "#kube/client";
import { type BlockRequest, coilCrds, coilResources } from "#kube/coil";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, start, until } from "#test/lab";
import { review as callReview, webhookPort as portOf, reviewOf as reviewOfKind } from "#test/webhook-review";

const SERVICE = "coilv2-ipam-webhook-service.kube-system.svc";
const CERT = { namespace: "kube-system", name: "coilv2-ipam-webhook-server-cert" };
const root = join(import.meta.dirname, "../..");
const DAY_MS = 86_400_000;

function pairOf(notAfter: number): { readonly ca: string; readonly cert: string; readonly key: string } {
  const init = { organization: "coil", notBefore: Date.now() - 2 * DAY_MS, notAfter };
  const authority = createAuthority({ commonName: "test", ...init });
  return { ca: authority.cert, ...issueServerCertificate(authority, { hosts: [SERVICE], ...init }) };
}

/** `called`: the API server calls webhooks; otherwise the test calls them alone. */
async function open(t: TestContext, { called }: { readonly called: boolean }, ...flags: readonly string[]) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-webhooks-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  let webhooks: number | undefined;
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    // Reached from the moment on at which the test says where they are.
    webhooks: called ? () => (webhooks === undefined ? undefined : { host: "127.0.0.1", port: webhooks }) : undefined,
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const kubeconfig = join(dir, "kubeconfig");
  writeFileSync(kubeconfig, server.kubeconfig());
  const api = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), { clock: systemClock });
  t.after(() => api.close());
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  await server.settled();
  const manifests = parseAllDocuments(readFileSync(join(root, "deploy/pods/webhooks.yaml"), "utf8"));
  server.seed(manifests.map((one) => one.toJS() as SeedObject));
  const endpoints = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0", "--webhook-addr=127.0.0.1:0"];
  const argv = [
    ISTHMUS,
    "coil-ipam-controller",
    `--kubeconfig=${kubeconfig}`,
    `--cert-dir=${dir}`,
    ...endpoints,
    ...flags,
  ];
  const run = () => {
    const program = start(argv, {});
    t.after(() => program.child.kill("SIGKILL"));
    return program;
  };
  const create = <T extends KubeObject>(type: ResourceType<T>, object: object): Promise<T> =>
    api.create(type, object as Draft<T>);
  const reach = (port: number): void => {
    webhooks = port;
  };
  return { dir, api, kubeconfig, run, create, reach };
}

const poolOf = (name: string, ipv4: string) => ({
  apiVersion: "coil.cybozu.com/v2",
  kind: "AddressPool",
  metadata: { name },
  spec: { blockSizeBits: 5, subnets: [{ ipv4 }] },
});

const reviewOf = (version: "v1" | "v1beta1", pool: ReturnType<typeof poolOf>, old?: object) =>
  reviewOfKind(version, coilResources.addressPools, pool, old);

const review = (port: number, ca: string, path: string, body: object) =>
  callReview({ port, ca, path, servername: SERVICE }, body);

const VALIDATE = "/validate-coil-cybozu-com-v2-addresspool";
const MUTATE = "/mutate-coil-cybozu-com-v2-addresspool";

test("webhooks: with rotation both replicas serve one certificate that the configurations trust, and judge pools in the asked version", async (t) => {
  const { api, run, create } = await open(t, { called: false }, "--enable-cert-rotation");
  const replicas = [run(), run()];
  const ports = await Promise.all(replicas.map((replica) => portOf(replica)));
  const trusted = async (): Promise<string> => {
    const { webhooks = [] } = await api.get(resources.validatingWebhookConfigurations, {
      name: "coilv2-validating-ipam-webhook-configuration",
    });
    return Buffer.from(webhooks[0]?.clientConfig.caBundle ?? "", "base64").toString();
  };
  await until("the authority is trusted", async () => (await trusted()) !== "");
  const ca = await trusted();
  await create(coilResources.addressPools, poolOf("first", "10.0.0.0/16"));
  for (const port of ports) {
    for (const version of ["v1", "v1beta1"] as const) {
      const ask = (path: string, object: ReturnType<typeof poolOf>, old?: object) =>
        review(port, ca, path, reviewOf(version, object, old));
      await until("this replica serves the certificate and sees the pool", async () => {
        try {
          const { response } = await ask(VALIDATE, poolOf("second", "10.0.1.0/24"));
          return response.allowed === false;
        } catch {
          return false;
        }
      });
      const refused = await ask(VALIDATE, poolOf("second", "10.0.1.0/24"));
      assert.equal(refused.apiVersion, `admission.k8s.io/${version}`);
      assert.equal(refused.response.status?.reason, "Invalid");
      assert.match(
        refused.response.status?.message ?? "",
        /^AddressPool.coil.cybozu.com "second" is invalid: spec.subnets\[0\]: .*overlaps with a subnet of AddressPool first$/,
      );
      assert.equal((await ask(VALIDATE, poolOf("second", "10.1.0.0/24"))).response.allowed, true);
      const shrunk = await ask(VALIDATE, poolOf("first", "10.0.0.0/17"), poolOf("first", "10.0.0.0/16"));
      assert.match(shrunk.response.status?.message ?? "", /spec.subnets\[0\]: Forbidden: unchangeable$/);
      const mutated = await ask(MUTATE, poolOf("second", "10.1.0.0/24"));
      assert.deepEqual(JSON.parse(Buffer.from(mutated.response.patch ?? "", "base64").toString()), [
        { op: "add", path: "/metadata/finalizers", value: ["coil.cybozu.com"] },
      ]);
    }
  }
  const { data = {} } = await api.get(resources.secrets, CERT);
  assert.equal(Buffer.from(data["ca.crt"] ?? "", "base64").toString(), ca);
  for (const { child, ended, said } of replicas) {
    child.kill("SIGTERM");
    assert.equal((await ended).code, 0);
    // Neither the missing files of a certificate that it makes itself, nor the other replica's writes are faults.
    assert.deepEqual(
      said()
        .split("\n")
        .filter((line) => /"level":"(warn|error)"/.test(line)),
      [],
    );
  }
});

test("webhooks: without a certificate the controller carves blocks and is not ready; files that come late, and new ones, are served", async (t) => {
  const { dir, api, run, create } = await open(t, { called: false });
  const program = run();
  const port = await portOf(program);
  await create(coilResources.addressPools, poolOf("default", "10.0.0.0/24"));
  await create(resources.nodes, { metadata: { name: "n" } });
  await create(coilResources.blockRequests, { metadata: { name: "r" }, spec: { nodeName: "n", poolName: "default" } });
  await until("the request is answered", async () => {
    const found: BlockRequest = await api.get(coilResources.blockRequests, { name: "r" });
    return found.status?.addressBlockName === "default-0";
  });
  await until("the log names the missing files", () => program.said().includes("are tls.crt and tls.key in"), {
    seen: program.said,
  });
  const pool = reviewOf("v1", poolOf("x", "10.9.0.0/24"));
  for (const notAfter of [Date.now() + DAY_MS, Date.now() + 2 * DAY_MS]) {
    const pair = pairOf(notAfter);
    writeFileSync(join(dir, "tls.key"), pair.key);
    writeFileSync(join(dir, "tls.crt"), pair.cert);
    const answer = await review(port, pair.ca, VALIDATE, pool);
    assert.equal(answer.response.allowed, true);
  }
  await until("it is ready", () => program.said().includes('"part":"webhook","msg":"well again"'), {
    seen: program.said,
  });
  const expired = pairOf(Date.now() - DAY_MS);
  writeFileSync(join(dir, "tls.key"), expired.key);
  writeFileSync(join(dir, "tls.crt"), expired.cert);
  await until("an expired certificate is told", () => program.said().includes("the webhook's certificate expired at"), {
    seen: program.said,
  });
  program.child.kill("SIGTERM");
  assert.equal((await program.ended).code, 0);
});

test("webhooks: with --enable-restart-on-cert-refresh the program ends with 0 after a renewal, and stays up afterwards", async (t) => {
  const { run } = await open(t, { called: false }, "--enable-cert-rotation", "--enable-restart-on-cert-refresh");
  assert.equal((await run().ended).code, 0);
  const again = run();
  await until("the stored certificate is served", () => again.said().includes('"webhook certificate loaded"'), {
    seen: again.said,
  });
  assert.equal(again.child.exitCode, null);
  again.child.kill("SIGTERM");
  assert.equal((await again.ended).code, 0);
});

test("isthmus validate: exit codes 0, 1 and 2, standard input, and JSON", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-validate-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const good = join(dir, "good.yaml");
  const bad = join(dir, "bad.json");
  writeFileSync(good, JSON.stringify(poolOf("a", "10.0.0.0/24")));
  writeFileSync(bad, JSON.stringify(poolOf("b", "10.0.0.0/31")));
  const run = (args: readonly string[], input = ""): Promise<{ code: number; out: string; err: string }> =>
    new Promise((resolve) => {
      const child = execFile(ISTHMUS, ["validate", ...args], (error, out, err) =>
        resolve({ code: Number(error?.code ?? 0), out, err }),
      );
      child.stdin?.end(input);
    });
  const fine = await run([good]);
  assert.deepEqual([fine.code, fine.out], [0, "no faults in 1 objects, 0 objects of other kinds skipped\n"]);
  const faulty = await run([good, "-"], readFileSync(bad, "utf8"));
  assert.equal(faulty.code, 1);
  assert.match(
    faulty.out,
    /^-:1: document 1: AddressPool\/b: spec.subnets\[0\].ipv4: Invalid value: "10.0.0.0\/31": is smaller/m,
  );
  const json = JSON.parse((await run(["--json", bad])).out);
  assert.deepEqual([json.ok, json.faults[0].file, json.faults[0].field], [false, bad, "spec.subnets[0].ipv4"]);
  for (const [args, says] of [
    [[join(dir, "none.yaml")], /cannot read .*none.yaml/],
    [[], /FILE: give at least one file/],
    [["--strickt", good], /strickt/],
  ] as const) {
    const refused = await run(args);
    assert.equal(refused.code, 2, refused.err);
    assert.match(refused.err, says);
  }
});

test("webhooks: an API server that calls them refuses a pool to kubectl with our text, and stores the finalizer of one that passes", async (t) => {
  const { api, dir, kubeconfig, run, reach, create } = await open(t, { called: true }, "--enable-cert-rotation");
  const file = (pool: object): string => {
    const path = join(dir, "pool.json");
    writeFileSync(path, JSON.stringify(pool));
    return path;
  };
  const kubectl = (...args: string[]): Promise<{ code: number; text: string }> =>
    new Promise((resolve) => {
      execFile("kubectl", [`--kubeconfig=${kubeconfig}`, ...args], (error, out, err) =>
        resolve({ code: Number(error?.code ?? 0), text: out + err }),
      );
    });
  const early = await kubectl("apply", "-f", file(poolOf("early", "10.0.0.0/16")));
  assert.equal(early.code, 1);
  assert.match(
    early.text,
    /failed calling webhook "maddresspool.kb.io".*service "coilv2-ipam-webhook-service" not found/,
  );
  const program = run();
  reach(await portOf(program));
  await until("pools can be created", async () => {
    try {
      await create(coilResources.addressPools, poolOf("first", "10.0.0.0/16"));
      return true;
    } catch {
      return false;
    }
  });
  const { metadata } = await api.get(coilResources.addressPools, { name: "first" });
  assert.deepEqual(metadata.finalizers, ["coil.cybozu.com"]);
  await until("the overlap is refused", async () => {
    const { code, text } = await kubectl("apply", "--dry-run=server", "-f", file(poolOf("second", "10.0.1.0/24")));
    return code === 1 && /spec.subnets\[0\]: .*overlaps with a subnet of AddressPool first/.test(text);
  });
  const applied = await kubectl("apply", "-f", file(poolOf("second", "10.1.0.0/24")));
  assert.equal(applied.code, 0, applied.text);
  const second = await api.get(coilResources.addressPools, { name: "second" });
  assert.deepEqual(second.metadata.finalizers, ["coil.cybozu.com"]);
  program.child.kill("SIGTERM");
  assert.equal((await program.ended).code, 0, program.said());
});
