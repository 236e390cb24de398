/** The admission webhooks of Egresses in `coil-egress-controller` and `coil-controller`, with the rights of deploy/pods, and `isthmus validate`. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import {
  type Draft,
  findObject,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type ResourceType,
  resources,
} from "#kube/client";
import { type AddressPool, coilCrds, coilResources, egressLabels, egressPoolName } from "#kube/coil";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, isthmus, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { type Answer, review, reviewOf, webhookPort } from "#test/webhook-review";

const { egresses } = coilResources;
const NAT = { namespace: "internet", name: "nat" };
const SERVERS = {
  ipam: "coilv2-ipam-webhook-service.kube-system.svc",
  egress: "coilv2-egress-webhook-service.kube-system.svc",
};
type Part = keyof typeof SERVERS;
const root = join(import.meta.dirname, "../..");

/** An API server that calls webhooks, with all manifests of pods and Egresses, and a controller program with its rights. */
async function open(t: TestContext, program: string, env: Record<string, string> = {}, more: readonly string[] = []) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-egress-webhooks-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const ports = new Map<string, number>();
  const controller = { name: `system:serviceaccount:kube-system:${program}`, groups: ["system:authenticated"] };
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tls: "self-signed",
    tokens: { admin: { name: "admin", groups: ["system:masters"] }, controller },
    webhooks: ({ name, namespace }) => {
      const port = ports.get(`${name}.${namespace}.svc`);
      return port === undefined ? undefined : { host: "127.0.0.1", port };
    },
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  const configOf = (token: string): string => {
    const path = join(dir, token);
    writeFileSync(path, server.kubeconfig({ token }));
    return path;
  };
  const api = new KubeClient(await loadKubeConfig({ path: configOf("admin"), clock: systemClock }), {
    clock: systemClock,
  });
  t.after(() => api.close());
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  await server.settled();
  await api.create(resources.namespaces, { metadata: { name: "internet" } });
  for (const file of ["rbac", "egress", "webhooks", "egress-webhooks", "egress-one-controller"]) {
    const text = readFileSync(join(root, `deploy/pods/${file}.yaml`), "utf8");
    server.seed(parseAllDocuments(text).map((one) => one.toJS() as SeedObject));
  }
  const health = await freePort();
  const flags = ["--metrics-addr=127.0.0.1:0", `--health-addr=127.0.0.1:${health}`, "--webhook-addr=127.0.0.1:0"];
  const argv = [
    ISTHMUS,
    program,
    `--kubeconfig=${configOf("controller")}`,
    `--cert-dir=${dir}`,
    "--enable-cert-rotation",
    ...flags,
  ];
  if (program === "coil-controller") argv.push("--egress-webhook-addr=127.0.0.1:0");
  const running = start([...argv, "--image=example/coil:1", ...more], { env, timeoutMs: 120_000 });
  t.after(() => running.child.kill("SIGKILL"));
  const trusted = async (part: Part): Promise<string> => {
    const name = `coilv2-validating-${part}-webhook-configuration`;
    const { webhooks = [] } = await api.get(resources.validatingWebhookConfigurations, { name });
    return Buffer.from(webhooks[0]?.clientConfig.caBundle ?? "", "base64").toString();
  };
  /** Waits until the webhooks of a part answer; then the API server reaches them too. */
  const serve = async (part: Part, logger = "webhook") => {
    const port = await webhookPort(running, logger);
    ports.set(SERVERS[part], port);
    await until(`${part}: the authority is trusted`, async () => (await trusted(part)) !== "", { seen: running.said });
    const ca = await trusted(part);
    const kind = part === "egress" ? "egress" : "addresspool";
    return (hook: "validate" | "mutate", body: object): Promise<Answer> =>
      review({ port, ca, servername: SERVERS[part], path: `/${hook}-coil-cybozu-com-v2-${kind}` }, body);
  };
  const isReady = async (): Promise<boolean> => {
    try {
      return (await fetch(`http://127.0.0.1:${health}/readyz`)).ok;
    } catch {
      return false;
    }
  };
  const end = async (): Promise<void> => {
    running.child.kill("SIGTERM");
    assert.equal((await running.ended).code, 0, running.said());
    assert.doesNotMatch(running.said(), /forbidden|because of a bug/);
  };
  return { dir, api, running, serve, isReady, configOf, end };
}

const egressOf = (spec: object) => ({
  apiVersion: "coil.cybozu.com/v2",
  kind: "Egress",
  metadata: NAT,
  spec: { destinations: ["10.0.0.0/8"], ...spec },
});
const labelled = (metadata: object) => ({ template: { metadata } });

/** Every row of docs/spec/pod-network.md#2.5, broken, and what is said about it. */
const BROKEN: readonly (readonly [object, RegExp])[] = [
  [{ destinations: undefined }, /spec.destinations: Required/],
  [{ destinations: [] }, /spec.destinations: /],
  [{ destinations: ["10.0.0.0/8", "10.0.0.1"] }, /spec.destinations\[1\]: Invalid value: "10.0.0.1": must be a CIDR/],
  [{ destinations: ["10.0.0.0/8", "10.1.0.0/8"] }, /spec.destinations\[1\]: Duplicate value: "10.1.0.0\/8"/],
  [{ addresses: [] }, /spec.addresses: /],
  [
    { addresses: [{ ipv4: "203.0.113.8" }] },
    /spec.addresses\[0\].ipv4: Invalid value: "203.0.113.8": must be an IPv4 CIDR/,
  ],
  [{ addresses: [{ ipv4: "203.0.113.8/32" }, { ipv6: "2001:db8::8/128" }] }, /spec.addresses\[1\]: .*same families/],
  [{ replicas: 0 }, /spec.replicas: /],
  [{ replicas: "two" }, /spec.replicas: /],
  [{ strategy: { type: "Never" } }, /spec.strategy.type: Unsupported value: "Never"/],
  [labelled({ labels: { "a b": "x" } }), /spec.template.metadata.labels: Invalid value: "a b"/],
  [labelled({ labels: { a: "-x" } }), /spec.template.metadata.labels.*"-x"/],
  [labelled({ annotations: { "a/b/c": "" } }), /spec.template.metadata.annotations: Invalid value: "a\/b\/c"/],
  [{ template: { spec: "text" } }, /spec.template.spec: /],
  [{ template: { spec: { containers: 5 } } }, /spec.template.spec.containers: Invalid value: "number": must be a list/],
  [{ template: { spec: { containers: [{ image: "x" }] } } }, /spec.template.spec.containers\[0\].name: Required/],
  [{ sessionAffinity: "Client" }, /spec.sessionAffinity: Unsupported value: "Client"/],
  [
    { sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } },
    /spec.sessionAffinityConfig.clientIP.timeoutSeconds: /,
  ],
  [
    { sessionAffinityConfig: { clientIP: { timeoutSeconds: 86_401 } } },
    /spec.sessionAffinityConfig.clientIP.timeoutSeconds: /,
  ],
  [{ fouSourcePortAuto: "yes" }, /spec.fouSourcePortAuto: /],
  [{ podDisruptionBudget: { minAvailable: 1, maxUnavailable: 1 } }, /spec.podDisruptionBudget: .*cannot both be set/],
  [{ podDisruptionBudget: { minAvailable: -1 } }, /spec.podDisruptionBudget.minAvailable: /],
  [{ podDisruptionBudget: { maxUnavailable: "101%" } }, /spec.podDisruptionBudget.maxUnavailable: /],
  [{ podDisruptionBudget: { maxUnavailable: "some" } }, /spec.podDisruptionBudget.maxUnavailable: /],
];

test("webhooks of Egresses: every broken row is refused with the field's path, on create and on update, in both versions, and so it is offline", async (t) => {
  const { dir, serve, isReady, end } = await open(t, "coil-egress-controller");
  const ask = await serve("egress");
  await until("the certificate is served", async () => {
    try {
      return (await ask("validate", reviewOf("v1", egresses, egressOf({})))).response.allowed;
    } catch {
      return false;
    }
  });
  for (const [spec, says] of BROKEN) {
    const what = JSON.stringify(spec);
    const broken = egressOf(spec);
    for (const version of ["v1", "v1beta1"] as const) {
      for (const old of [undefined, egressOf({ replicas: 7 })]) {
        const { apiVersion, response } = await ask("validate", reviewOf(version, egresses, broken, old));
        assert.equal(apiVersion, `admission.k8s.io/${version}`);
        assert.equal(response.allowed, false, what);
        assert.equal(response.status?.reason, "Invalid", what);
        assert.match(response.status?.message ?? "", says, what);
      }
    }
    const file = join(dir, "broken.json");
    writeFileSync(file, JSON.stringify(broken));
    const offline = await isthmus(["validate", file]);
    assert.equal(offline.code, 1, what);
    assert.match(offline.stdout, says, what);
    assert.match(offline.stdout, /Egress\/internet\/nat: spec/, what);
  }
  // One that an older rule let in can still lose its finalizer, or get a label.
  const stored = egressOf({ destinations: ["10.0.0.0/8", "10.1.0.0/8"] });
  const touched = { ...stored, metadata: { ...NAT, labels: { a: "b" } } };
  assert.equal((await ask("validate", reviewOf("v1", egresses, touched, stored))).response.allowed, true);
  const { response } = await ask("mutate", reviewOf("v1", egresses, egressOf({ template: {} })));
  assert.deepEqual(JSON.parse(Buffer.from(response.patch ?? "", "base64").toString()), [
    { op: "add", path: "/spec/template/spec", value: { containers: [{ name: "egress" }] } },
  ]);
  await until("it is ready", isReady);
  await end();
});

test("webhooks of Egresses: an API server that calls them refuses an Egress to kubectl, and stores the container of one that passes", async (t) => {
  const { dir, api, serve, configOf, end } = await open(t, "coil-egress-controller");
  const kubectl = (egress: object): Promise<{ code: number; text: string }> => {
    const file = join(dir, "egress.json");
    writeFileSync(file, JSON.stringify(egress));
    return new Promise((resolve) => {
      execFile("kubectl", [`--kubeconfig=${configOf("admin")}`, "apply", "-f", file], (error, out, err) =>
        resolve({ code: Number(error?.code ?? 0), text: out + err }),
      );
    });
  };
  const early = await kubectl(egressOf({}));
  assert.match(early.text, /failed calling webhook "megress.kb.io".*service "coilv2-egress-webhook-service" not found/);
  await serve("egress");
  const good = egressOf({ template: { metadata: { labels: { team: "red" } } } });
  await until("a good one passes", async () => (await kubectl(good)).code === 0);
  const { spec } = await api.get(egresses, NAT);
  assert.deepEqual(spec?.template?.spec?.containers, [{ name: "egress" }]);
  const refused = await kubectl(egressOf({ destinations: ["10.0.0.0/8", "10.1.0.0/8"] }));
  assert.equal(refused.code, 1);
  assert.match(refused.text, /The Egress "nat" is invalid: spec.destinations\[1\]: Duplicate value: "10.1.0.0\/8"/);
  await until("its objects are made", async () => (await findObject(api, resources.deployments, NAT)) !== undefined);
  await end();
});

test("webhooks of Egresses: where the controller's pod has both families, all of IPv4 without any IPv6 passes with a warning", async (t) => {
  const { api, serve, end } = await open(t, "coil-egress-controller", {
    COIL_POD_NAMESPACE: "kube-system",
    COIL_POD_NAME: "own",
  });
  const ask = await serve("egress");
  // The pod appears after the start of its program, as seen from a server that lags.
  const own = await api.create(resources.pods, {
    metadata: { namespace: "kube-system", name: "own" },
    spec: { containers: [{ name: "c", image: "x" }] },
  });
  await api.replaceStatus(resources.pods, { ...own, status: { podIPs: [{ ip: "10.0.0.1" }, { ip: "fd00::1" }] } });
  const wide = reviewOf("v1", egresses, egressOf({ destinations: ["0.0.0.0/0"] }));
  let answer: Answer | undefined;
  await until("it is warned of", async () => {
    try {
      answer = await ask("validate", wide);
      return (answer.response.warnings ?? []).length > 0;
    } catch {
      return false;
    }
  });
  assert.equal(answer?.response.allowed, true);
  assert.match(answer?.response.warnings?.join() ?? "", /spec.destinations: 0.0.0.0\/0 without an IPv6 destination/);
  const both = reviewOf("v1", egresses, egressOf({ destinations: ["0.0.0.0/0", "::/0"] }));
  assert.deepEqual((await ask("validate", both)).response.warnings ?? [], []);
  await end();
});

test("coil-controller: one process has both Leases and both kinds' webhooks, carves blocks and starts routers", async (t) => {
  const { api, running, serve, isReady, end } = await open(t, "coil-controller");
  await serve("ipam", "webhook-ipam");
  await serve("egress", "webhook-egress");
  const create = async <T extends KubeObject>(type: ResourceType<T>, object: object): Promise<void> => {
    await until(`${type.kind} is made`, async () => {
      try {
        await api.create(type, object as Draft<T>);
        return true;
      } catch (error) {
        if (String(error).includes("failed calling webhook")) return false;
        throw error;
      }
    });
  };
  await create(coilResources.addressPools, {
    metadata: { name: "default" },
    spec: { blockSizeBits: 5, subnets: [{ ipv4: "10.0.0.0/16" }] },
  });
  await create(egresses, egressOf({ template: {} }));
  await assert.rejects(
    api.create(egresses, { metadata: { ...NAT, name: "bad" }, spec: { destinations: ["x"] } }),
    /spec.destinations\[0\]/,
  );
  await create(resources.nodes, { metadata: { name: "n" } });
  await create(coilResources.blockRequests, { metadata: { name: "r" }, spec: { nodeName: "n", poolName: "default" } });
  await until("the request is answered", async () => {
    return (await api.get(coilResources.blockRequests, { name: "r" })).status?.addressBlockName === "default-0";
  });
  await until("the router is there", async () => (await findObject(api, resources.deployments, NAT)) !== undefined);
  const leases = async () => (await api.listAll(resources.leases, { namespace: "kube-system" })).items;
  assert.deepEqual((await leases()).map(({ metadata }) => metadata.name).sort(), [
    "coil-egress-leader",
    "coil-ipam-leader",
  ]);
  await until("it is ready", isReady, { seen: running.said });
  await end();
  for (const { spec } of await leases()) assert.equal(spec?.holderIdentity ?? "", "");
});

test("coil-controller --egress-address-range: an Egress's addresses are refused where they are another's or outside, and else become its pool, which goes with the Egress", async (t) => {
  const range = "--egress-address-range=203.0.113.0/24";
  const { api, running, serve, end } = await open(t, "coil-controller", {}, [range]);
  await serve("ipam", "webhook-ipam");
  await serve("egress", "webhook-egress");
  const pools = coilResources.addressPools;
  const isReached = async (make: () => Promise<unknown>): Promise<boolean> => {
    try {
      await make();
      return true;
    } catch (error) {
      if (String(error).includes("failed calling webhook")) return false;
      throw error;
    }
  };
  const site = { metadata: { name: "site" }, spec: { blockSizeBits: 0, subnets: [{ ipv4: "203.0.113.0/28" }] } };
  await until("the pool is made", () => isReached(() => api.create(pools, site as Draft<AddressPool>)));
  const withAddresses = (name: string, ...ipv4: readonly string[]) =>
    ({
      ...egressOf({ template: {}, addresses: ipv4.map((one) => ({ ipv4: one })) }),
      metadata: { ...NAT, name },
    }) as never;
  const first = withAddresses("first", "203.0.113.16/32");
  await until("the Egress is made", () => isReached(() => api.create(egresses, first)));
  const ref = (name: string) => ({ ...NAT, name });
  const poolOf = (name: string) => findObject(api, pools, { name: egressPoolName(ref(name)) });
  await until("its pool is there", async () => (await poolOf("first")) !== undefined, { seen: running.said });
  const { metadata, spec } = (await poolOf("first")) ?? assert.fail();
  assert.deepEqual(spec, { blockSizeBits: 0, subnets: [{ ipv4: "203.0.113.16/32" }] });
  assert.deepEqual(metadata.finalizers, ["coil.cybozu.com"]);
  assert.deepEqual(metadata.labels, { ...egressLabels("first"), "coil.cybozu.com/egress-namespace": NAT.namespace });
  for (const [addresses, why] of [
    [
      ["203.0.113.16/31"],
      /spec\.addresses\[0\]: .*overlaps with a subnet of AddressPool egress-\w+, which is that of Egress internet\/first/,
    ],
    [["203.0.113.4/32"], /spec\.addresses\[0\]: .*overlaps with a subnet of AddressPool site/],
    [["198.51.100.1/32"], /spec\.addresses\[0\]\.ipv4: Forbidden: is not inside a range/],
  ] as const)
    await until("the webhooks know the others", async () => {
      const refused = await api.create(egresses, withAddresses("second", ...addresses)).then(
        () => undefined,
        (error: unknown) => String(error),
      );
      if (refused === undefined) await api.delete(egresses, ref("second"));
      return refused !== undefined && why.test(refused);
    });
  const edit = (addresses: object | null) =>
    api.patch(egresses, ref("first"), { type: "merge", body: { spec: { addresses } } });
  await assert.rejects(edit([{ ipv4: "203.0.113.17/32" }]), /spec\.addresses\[0\]|existing subnets cannot be changed/);
  await edit([{ ipv4: "203.0.113.16/32" }, { ipv4: "203.0.113.17/32" }]);
  await until("the pool has both", async () => (await poolOf("first"))?.spec?.subnets.length === 2);
  // Off: no block is left that would hold the pool.
  await edit(null);
  await until("the pool is gone", async () => (await poolOf("first")) === undefined, { seen: running.said });
  const { template } = (await findObject(api, resources.deployments, ref("first")))?.spec ?? assert.fail();
  assert.equal(template.metadata?.annotations?.["coil.cybozu.com/pool"], undefined);
  await edit([{ ipv4: "203.0.113.99/32" }]);
  await until("it has another pool", async () => (await poolOf("first"))?.spec?.subnets[0]?.ipv4 === "203.0.113.99/32");
  await api.delete(egresses, ref("first"));
  await until("the pool goes with its Egress", async () => (await poolOf("first")) === undefined);
  assert.notEqual(await findObject(api, pools, { name: "site" }), undefined);
  await end();
});

test("coil-controller: the loss of either Lease ends the process with 1, so that no part goes on alone", async (t) => {
  const { api, running } = await open(t, "coil-controller");
  const lease = { namespace: "kube-system", name: "coil-egress-leader" };
  await until("it leads both", async () => {
    const both = await Promise.all(
      [lease, { ...lease, name: "coil-ipam-leader" }].map((ref) => findObject(api, resources.leases, ref)),
    );
    return both.every((one) => (one?.spec?.holderIdentity ?? "") !== "");
  });
  const held = await api.get(resources.leases, lease);
  await api.replace(resources.leases, { ...held, spec: { ...held.spec, holderIdentity: "another" } });
  const { code, stderr } = await running.ended;
  assert.equal(code, 1);
  assert.match(stderr, /this process has lost a Lease and ends/);
});
