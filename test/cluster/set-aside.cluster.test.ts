/** An object that ends its controller: the third time it is set aside, and the controller goes on with the others (docs/design/strangers.md). */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { findObject, KubeClient, loadKubeConfig, resources } from "#kube/client";
import { COIL_FINALIZER, coilCrds, coilResources } from "#kube/coil";
import { type FaultMatch, type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, type Running, start, until } from "#test/lab";

const { egresses, addressPools } = coilResources;
const root = join(import.meta.dirname, "../..");

/** The controllers differ in these. */
interface Subject {
  readonly program: string;
  readonly lease: string;
  readonly flags: readonly string[];
  /** A write of a pass over the object `poison`, which gets no answer. */
  readonly write: FaultMatch;
  readonly make: (api: KubeClient, name: string) => Promise<unknown>;
  readonly isDone: (api: KubeClient, name: string) => Promise<boolean>;
  readonly change: (api: KubeClient) => Promise<unknown>;
}

const labels = { changed: "true" };
const SUBJECTS: readonly Subject[] = [
  {
    program: "coil-egress-controller",
    lease: "coil-egress-leader",
    flags: ["--image=registry.example/coil:1"],
    write: { verb: "patch", resource: "deployments", name: "poison" },
    make: (api, name) =>
      api.create(egresses, {
        metadata: { name, namespace: "default" },
        spec: { destinations: ["0.0.0.0/0"] },
      } as never),
    isDone: async (api, name) =>
      (await findObject(api, resources.deployments, { name, namespace: "default" })) !== undefined,
    change: (api) =>
      api.patch(egresses, { name: "poison", namespace: "default" }, { type: "merge", body: { metadata: { labels } } }),
  },
  {
    program: "coil-ipam-controller",
    lease: "coil-ipam-leader",
    flags: [],
    write: { verb: "update", resource: "addresspools", name: "poison" },
    // A pool that is being deleted: its pass removes the finalizer.
    make: async (api, name) => {
      const subnets = [{ ipv4: name === "poison" ? "10.1.0.0/24" : "10.2.0.0/24" }];
      const metadata = { name, finalizers: [COIL_FINALIZER] };
      await api.create(addressPools, { metadata, spec: { blockSizeBits: 0, subnets } } as never);
      await api.delete(addressPools, { name });
    },
    isDone: async (api, name) => (await findObject(api, addressPools, { name })) === undefined,
    change: (api) => api.patch(addressPools, { name: "poison" }, { type: "merge", body: { metadata: { labels } } }),
  },
];

/** An API server with the rights of the manifests, and a function that starts the program with these. */
async function open(t: TestContext, { program, flags }: Subject) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-aside-"));
  const user = { name: `system:serviceaccount:kube-system:${program}`, groups: ["system:authenticated"] };
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    tokens: { admin: { name: "admin", groups: ["system:masters"] }, program: user },
    log: nullLogger,
    clock: systemClock,
  });
  for (const token of ["admin", "program"]) writeFileSync(join(folder, token), server.kubeconfig({ token }));
  const api = new KubeClient(await loadKubeConfig({ path: join(folder, "admin"), clock: systemClock }), {
    clock: systemClock,
  });
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  for (const file of ["rbac.yaml", "egress.yaml"]) {
    const text = readFileSync(join(root, "deploy/pods", file), "utf8");
    server.seed(parseAllDocuments(text).map((one) => one.toJS() as SeedObject));
  }
  await server.settled();
  const running: Running[] = [];
  const record = join(folder, "record");
  const run = (): Running => {
    const none = ["--webhook-addr=none", "--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"];
    const own = [`--kubeconfig=${join(folder, "program")}`, `--record-dir=${record}`, ...none, ...flags];
    running.push(start([ISTHMUS, program, ...own], { env: { COIL_POD_NAME: undefined }, timeoutMs: 120_000 }));
    return running.at(-1) ?? assert.fail();
  };
  t.after(async () => {
    for (const one of running) one.child.kill("SIGKILL");
    await Promise.all(running.map((one) => one.ended));
    await api.close();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
    for (const one of running) assert.doesNotMatch(one.said(), /forbidden|because of a bug/);
  });
  return { server, api, run };
}

const eventually = (what: string, check: () => Promise<boolean>): Promise<void> =>
  until(what, check, { deadlineMs: 40_000, everyMs: 20 });

for (const subject of SUBJECTS) {
  test(`${subject.program}: an object during whose pass it was killed three times is set aside with an event, others go on, and a change frees it`, async (t) => {
    const { server, api, run } = await open(t, subject);
    const fault = server.faults.add({ match: subject.write, action: { latencyMs: 120_000 } });
    await subject.make(api, "poison");
    // A pass may end before its write, for want of what it made first: only one whose write waits is under way when the process is killed.
    const waiting = (): number => server.faults.list().find(({ id }) => id === fault)?.hits ?? 0;
    for (let at = 0; at < 3; at += 1) {
      const before = waiting();
      const one = run();
      await eventually("its pass is under way", async () => waiting() > before);
      one.child.kill("SIGKILL");
      await one.ended;
      // As if it had expired.
      await api.delete(resources.leases, { namespace: "kube-system", name: subject.lease });
    }
    const last = run();
    await subject.make(api, "good");
    await eventually("the other object is handled", () => subject.isDone(api, "good"));
    const about = async (): Promise<readonly string[]> =>
      (await api.list(resources.events, {})).items
        .filter(({ reason, regarding }) => reason === "SetAside" && regarding?.name === "poison")
        .map(({ note = "" }) => note);
    await eventually("the event is written", async () => (await about()).length > 0);
    const [note = ""] = await about();
    assert.match(note, /the process ended while this object was reconciled: it is not reconciled until it changes/);
    assert.equal(await subject.isDone(api, "poison"), false);
    server.faults.remove(fault);
    await subject.change(api);
    await eventually("the changed object is handled", () => subject.isDone(api, "poison"));
    last.child.kill("SIGTERM");
    assert.equal((await last.ended).code, 0);
    assert.match(last.said(), /object set aside/);
  });
}
