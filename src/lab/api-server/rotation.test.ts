/** The rotation of webhook certificates against an API server: its module is in `kube`, which must not know the lab. */
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import {
  type Draft,
  isKubeError,
  KubeClient,
  type KubeObject,
  type ResourceType,
  resources,
  staticConnection,
} from "#kube/client";
import { CertificateRotation, type KeyPair } from "#kube/webhook";
import { startApiServer } from "./index.ts";

const DAY_MS = 86_400_000;
const SECRET = { namespace: "kube-system", name: "certs" };
const HOSTS = ["hooks.kube-system.svc", "hooks.kube-system.svc.cluster.local"];

interface Replica {
  readonly rotation: CertificateRotation;
  readonly pairs: { readonly pair: KeyPair; readonly refreshed: boolean }[];
  renewals: number;
}

async function open(t: TestContext) {
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
  t.after(() => server[Symbol.asyncDispose]());
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  t.after(() => api.close());
  const clock = new FakeClock(Date.now());
  const create = <T extends KubeObject>(type: ResourceType<T>, object: object): Promise<T> =>
    api.create(type, object as Draft<T>);
  const hook = (name: string) => ({
    name,
    admissionReviewVersions: ["v1"],
    sideEffects: "None",
    clientConfig: { service: { name: "hooks", namespace: "kube-system", path: "/" } },
    rules: [{ apiGroups: ["none.example"], apiVersions: ["v1"], operations: ["CREATE"], resources: ["nothings"] }],
  });
  await create(resources.secrets, { metadata: SECRET, type: "Opaque", data: { other: "a2VwdA==", "ca.key": "b2xk" } });
  await create(resources.mutatingWebhookConfigurations, { metadata: { name: "m" }, webhooks: [hook("m.example.com")] });
  await create(resources.validatingWebhookConfigurations, {
    metadata: { name: "v" },
    webhooks: [hook("v.example.com"), hook("w.example.com")],
  });
  const replica = (at = clock): Replica => {
    const made: Replica = {
      pairs: [],
      renewals: 0,
      rotation: new CertificateRotation(
        { api, log: nullLogger, clock: at },
        {
          secret: SECRET,
          names: { authority: "ca", organization: "coil", hosts: HOSTS },
          mutating: "m",
          validating: "v",
        },
        {
          onPair: (pair, { refreshed }) => made.pairs.push({ pair, refreshed }),
          onRenewed: () => {
            made.renewals += 1;
          },
        },
      ),
    };
    return made;
  };
  const sync = (one: Replica) => one.rotation.sync({ signal: t.signal });
  const secret = async (): Promise<Record<string, string>> => {
    const { data = {} } = await api.get(resources.secrets, SECRET);
    return Object.fromEntries(Object.entries(data).map(([key, text]) => [key, Buffer.from(text, "base64").toString()]));
  };
  const bundles = async (): Promise<(string | undefined)[]> => {
    const { webhooks: one = [] } = await api.get(resources.mutatingWebhookConfigurations, { name: "m" });
    const { webhooks: two = [] } = await api.get(resources.validatingWebhookConfigurations, { name: "v" });
    return [...one, ...two].map(({ clientConfig: { caBundle } }) =>
      caBundle === undefined ? undefined : Buffer.from(caBundle, "base64").toString(),
    );
  };
  const write = async (data: Readonly<Record<string, string>>): Promise<void> => {
    const stored = await api.get(resources.secrets, SECRET);
    const encoded = Object.entries(data).map(([key, text]) => [key, Buffer.from(text).toString("base64")] as const);
    await api.replace(resources.secrets, { ...stored, data: Object.fromEntries(encoded) });
  };
  return { server, api, clock, replica, sync, secret, bundles, write };
}

test("rotation: an empty secret is filled, both configurations trust it, and a second pass writes nothing", async (t) => {
  const { server, replica, sync, secret, bundles } = await open(t);
  const one = replica();
  await sync(one);
  const data = await secret();
  assert.deepEqual(Object.keys(data).sort(), ["ca.crt", "other", "tls.crt", "tls.key"]);
  const [leaf, ca] = [new X509Certificate(data["tls.crt"] ?? ""), new X509Certificate(data["ca.crt"] ?? "")];
  assert.ok(leaf.checkIssued(ca) && leaf.verify(ca.publicKey));
  for (const host of HOSTS) assert.equal(leaf.checkHost(host), host);
  assert.match(ca.subject, /O=coil\nCN=ca/);
  assert.deepEqual(await bundles(), [data["ca.crt"], data["ca.crt"], data["ca.crt"]]);
  assert.deepEqual(one.pairs, [{ pair: { cert: data["tls.crt"], key: data["tls.key"] }, refreshed: true }]);
  const { resourceVersion } = server;
  for (let pass = 0; pass < 5; pass += 1) {
    const { requeueAfterMs } = await sync(one);
    assert.ok(requeueAfterMs >= 60_000, `${requeueAfterMs}`);
  }
  assert.deepEqual([server.resourceVersion, one.renewals, one.pairs.length], [resourceVersion, 1, 1]);
});

test("rotation: of replicas that race, one writes, and all serve what it wrote", async (t) => {
  const { replica, sync, secret } = await open(t);
  const replicas = Array.from({ length: 4 }, () => replica());
  const settle = async (one: Replica): Promise<void> => {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      try {
        await sync(one);
        return;
      } catch (error) {
        if (!isKubeError(error, "conflict")) throw error;
      }
    }
    assert.fail("never settled");
  };
  await Promise.all(replicas.map(settle));
  const data = await secret();
  assert.equal(
    replicas.reduce((sum, { renewals }) => sum + renewals, 0),
    1,
  );
  for (const { pairs } of replicas)
    assert.deepEqual(pairs.at(-1)?.pair, { cert: data["tls.crt"], key: data["tls.key"] });
});

test("rotation: near its end, and past it, a certificate is renewed; the old authority stays trusted until it expires", async (t) => {
  const { clock, replica, sync, secret, bundles } = await open(t);
  const one = replica();
  await sync(one);
  const first = (await secret())["ca.crt"] ?? "";
  await clock.advance(274 * DAY_MS);
  await sync(one);
  assert.equal(one.renewals, 1);
  await clock.advance(2 * DAY_MS);
  await sync(one);
  assert.equal(one.renewals, 2);
  assert.equal(one.pairs.at(-1)?.refreshed, true);
  const second = (await secret())["ca.crt"] ?? "";
  assert.ok(second.endsWith(first) && second.length > first.length, "both authorities are trusted");
  assert.deepEqual(await bundles(), [second, second, second]);
  await clock.advance(2000 * DAY_MS);
  await sync(one);
  const third = (await secret())["ca.crt"] ?? "";
  assert.equal(third.match(/BEGIN/g)?.length, 1);
  assert.ok(Date.parse(new X509Certificate(third).validTo) > clock.now());
});

test("rotation: a secret that others spoil again and again is repaired at most once a minute", async (t) => {
  const { clock, replica, sync, secret, write } = await open(t);
  const one = replica();
  await sync(one);
  const good = await secret();
  for (const spoil of [{}, { ...good, "tls.key": "none" }, { ...good, "ca.crt": "none" }, { ...good, "tls.crt": "" }]) {
    await write(spoil);
    const { requeueAfterMs } = await sync(one);
    assert.ok(requeueAfterMs > 0 && requeueAfterMs <= 60_000);
    assert.deepEqual(await secret(), spoil, "not at once");
    assert.deepEqual(one.pairs.length, one.renewals, "what was served stays served");
    const before = one.renewals;
    await clock.advance(60_000);
    await sync(one);
    assert.equal(one.renewals, before + 1);
  }
});

test("rotation: a caBundle that others change is put right, at most every 5 s", async (t) => {
  const { api, clock, replica, sync, bundles } = await open(t);
  const one = replica();
  await sync(one);
  const [good] = await bundles();
  const spoil = async (): Promise<void> => {
    const found = await api.get(resources.mutatingWebhookConfigurations, { name: "m" });
    const webhooks = (found.webhooks ?? []).map((hook) => ({
      ...hook,
      clientConfig: {
        ...hook.clientConfig,
        caBundle: Buffer.from(
          createAuthority({ commonName: "x", organization: "x", notBefore: 0, notAfter: 1000 }).cert,
        ).toString("base64"),
      },
    }));
    await api.replace(resources.mutatingWebhookConfigurations, { ...found, webhooks });
  };
  await spoil();
  const { requeueAfterMs } = await sync(one);
  assert.ok(requeueAfterMs > 0 && requeueAfterMs <= 5000);
  assert.notEqual((await bundles())[0], good);
  await clock.advance(5000);
  await sync(one);
  assert.equal((await bundles())[0], good);
});

test("rotation: a pair that comes just after an injection is served when it is trusted, and not before", async (t) => {
  const { server, clock, replica, sync, secret, bundles, write } = await open(t);
  const [one, two] = [replica(), replica()];
  await sync(one);
  const first = one.pairs.at(-1)?.pair;
  // Another replica renews, and is gone before it has injected.
  await write({});
  server.faults.add({ match: { verb: "update", resource: "mutatingwebhookconfigurations" }, action: { status: 500 } });
  await assert.rejects(sync(two));
  server.faults.clear();
  const { requeueAfterMs } = await sync(one);
  assert.ok(requeueAfterMs > 0 && requeueAfterMs <= 5000, `${requeueAfterMs}`);
  assert.deepEqual(one.pairs.at(-1)?.pair, first, "not trusted yet");
  await clock.advance(requeueAfterMs);
  await sync(one);
  const data = await secret();
  assert.deepEqual(await bundles(), [data["ca.crt"], data["ca.crt"], data["ca.crt"]]);
  assert.deepEqual(one.pairs.at(-1), { pair: { cert: data["tls.crt"], key: data["tls.key"] }, refreshed: true });
});

test("rotation: without the secret the error names it; without configurations the certificate is made all the same", async (t) => {
  const { api, replica, sync } = await open(t);
  await api.delete(resources.mutatingWebhookConfigurations, { name: "m" });
  await api.delete(resources.validatingWebhookConfigurations, { name: "v" });
  const one = replica();
  await sync(one);
  assert.equal(one.pairs.length, 1);
  await api.delete(resources.secrets, SECRET);
  await assert.rejects(sync(one), { code: "no-secret", message: /Secret kube-system\/certs does not exist/ });
});

test("rotation: any failure of the API leaves a pass that can be repeated until all agree (faults)", async (t) => {
  const { server, clock, replica, sync, secret, bundles } = await open(t);
  server.faults.add({ match: { probability: 0.4 }, action: { status: 503 } });
  server.faults.add({ match: { verb: "update", probability: 0.3 }, action: { status: 409 } });
  const one = replica();
  let done = false;
  for (let attempt = 0; attempt < 60 && !done; attempt += 1) {
    try {
      await one.rotation.sync({ signal: AbortSignal.any([t.signal, AbortSignal.timeout(400)]) });
      done = new Set(await bundles()).size === 1 && (await bundles())[0] !== undefined;
    } catch (error) {
      assert.ok(error instanceof Error);
    }
    await clock.advance(60_000);
  }
  server.faults.clear();
  await sync(one);
  const data = await secret();
  assert.deepEqual(await bundles(), [data["ca.crt"], data["ca.crt"], data["ca.crt"]]);
  assert.equal(one.pairs.at(-1)?.pair.cert, data["tls.crt"]);
});

test("fuzz: whatever the secret holds, a pass ends with a good certificate", async (t) => {
  const { clock, replica, sync, secret, write } = await open(t);
  const life = { notBefore: clock.now() - DAY_MS, notAfter: clock.now() + 3650 * DAY_MS };
  const authority = createAuthority({ commonName: "a", organization: "o", ...life });
  const good = issueServerCertificate(authority, { hosts: HOSTS, organization: "o", ...life });
  const part = fc.oneof(fc.string(), fc.constantFrom(authority.cert, good.cert, good.key, good.cert.slice(0, 200), ""));
  await fc.assert(
    fc.asyncProperty(fc.dictionary(fc.constantFrom("tls.crt", "tls.key", "ca.crt"), part), async (data) => {
      await write(data);
      const one = replica();
      await sync(one);
      const stored = await secret();
      assert.ok(new X509Certificate(stored["tls.crt"] ?? "").checkIssued(new X509Certificate(stored["ca.crt"] ?? "")));
    }),
    { numRuns: 60 },
  );
});
