import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { poll } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import { createLogger, type Logger, nullLogger } from "#base/log";
import { createAuthority, issueServerCertificate } from "#base/x509";
import {
  KubeClient,
  type KubeConnection,
  KubeError,
  loadKubeConfig,
  resources,
  type ServerAddress,
} from "#kube/client";
import { createInformer } from "#kube/informer";
import { startApiServer } from "#lab/api-server";
import { Relays, serversSlice as slice } from "#test/relay";
import { mayFollow, ServerFollower } from "./server-follower.ts";
import { textOf } from "./server-list.ts";

const TIMEOUT = { timeout: 30_000 };
const NAMES = { organization: "test", notBefore: Date.now() - 3_600_000, notAfter: Date.now() + 3_600_000 };

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-api-servers-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

async function isSoon(what: string, condition: () => boolean): Promise<void> {
  const options = { until: (is: boolean) => is, everyMs: 20, deadlineMs: 8000, clock: systemClock };
  assert.ok(await poll(async () => condition(), options), what);
}

test(
  "ServerFollower: three servers are killed in turn under changes and others take their places; when none of the first is left, the client and its next start go on",
  TIMEOUT,
  async (t) => {
    const log = nullLogger;
    await using server = await startApiServer({ listen: [{ host: "127.0.0.1", port: 0 }], log, clock: systemClock });
    const target = new URL(server.urls[0] ?? "");
    const folder = folderOf(t);
    writeFileSync(join(folder, "kubeconfig"), server.kubeconfig());
    const path = join(folder, "run/coild/api-servers.json");
    const direct = await loadKubeConfig({ path: join(folder, "kubeconfig"), clock: systemClock });
    await using admin = new KubeClient(direct, { clock: systemClock });

    // All servers of a cluster have one port. Their certificate is for 127.0.0.1, the configured name.
    const ca = createAuthority({ commonName: "ca", ...NAMES });
    const certificate = issueServerCertificate(ca, { hosts: ["127.0.0.1"], ...NAMES });
    const relays = new Relays(target, certificate);
    t.after(() => relays.close());
    for (const last of [1, 2, 3]) await relays.begin(`127.0.0.${last}`);
    await admin.create(resources.endpointSlices, slice(relays.port, relays.hosts));
    const publish = async (): Promise<void> => {
      const ref = { namespace: "default", name: "kubernetes" };
      const { endpoints } = slice(relays.port, relays.hosts);
      await admin.patch(resources.endpointSlices, ref, { type: "merge", body: { endpoints } });
    };

    const connection: KubeConnection = {
      ...direct,
      server: new URL(`https://127.0.0.1:${relays.port}`),
      credentials: async () => ({ ...(await direct.credentials()), ca: ca.cert }),
    };
    const kept = (): string => (existsSync(path) ? readFileSync(path, "utf8") : "");
    {
      await using client = new KubeClient(connection, { clock: systemClock });
      const stop = new AbortController();
      const follower = followerOf(client, path, log);
      const informer = createInformer(client, resources.namespaces, { clock: systemClock });
      const running = [follower.run({ signal: stop.signal }), informer.run({ signal: stop.signal })];
      try {
        await isSoon("the first three are kept", () => kept().includes("127.0.0.3"));
        for (const [at, old] of [1, 2, 3].entries()) {
          await relays.end(`127.0.0.${old}`);
          await relays.begin(`127.0.0.${old + 3}`);
          await publish();
          const metadata = { name: `n${at}` };
          await admin.create(resources.namespaces, { apiVersion: "v1", kind: "Namespace", metadata });
          await isSoon(`an informer goes on after ${at + 1} deaths`, () => informer.store.get(`n${at}`) !== undefined);
          assert.equal((await client.get(resources.namespaces, metadata)).metadata.name, metadata.name);
          await isSoon("the next one is kept", () => kept().includes(`127.0.0.${old + 3}`));
        }
      } finally {
        stop.abort();
        await Promise.all(running);
      }
    }
    assert.equal(statSync(dirname(path)).mode & 0o777, 0o700);
    assert.equal(statSync(path).mode & 0o777, 0o600);

    await using next = new KubeClient(connection, { clock: systemClock });
    await assert.rejects(next.get(resources.namespaces, { name: "n0" }), { code: "unreachable" });
    const stop = new AbortController();
    const running = followerOf(next, path, log).run({ signal: stop.signal });
    assert.equal((await next.get(resources.namespaces, { name: "n0" })).metadata.name, "n0");
    stop.abort();
    await running;
  },
);

function followerOf(client: KubeClient, path: string, log: Logger): ServerFollower {
  const learn = (servers: readonly ServerAddress[]): void => client.learn(servers);
  const { connection } = client;
  return new ServerFollower({ api: client, learn, log, clock: systemClock }, { connection, path, everyMs: 50 });
}

/** A follower whose API server answers by `answer`, on a clock of its own. */
function rig(path: string, answer: () => object) {
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = createLogger({ name: "t", level: "debug", write: (line: string) => lines.push(line) });
  const learnt: string[] = [];
  let looks = 0;
  const api = {
    list: async () => {
      looks += 1;
      return { items: [answer()], resourceVersion: "1", continueToken: undefined, remainingItemCount: undefined };
    },
  };
  const learn = (servers: readonly ServerAddress[]): void => void learnt.push(servers.map(textOf).sort().join(" "));
  const follower = new ServerFollower(
    { api: api as unknown as Pick<KubeClient, "list">, learn, log, clock, random: () => 0 },
    { connection: { server: new URL("https://10.0.0.1:6443") }, path },
  );
  const stop = new AbortController();
  const running = follower.run({ signal: stop.signal });
  const end = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  return { clock, lines, learnt, end, looks: () => looks };
}

test("ServerFollower: without the right to list the slice it says so once, at debug, and looks again each ten minutes", async (t) => {
  const path = join(folderOf(t), "p/api-servers.json");
  const { clock, lines, learnt, end, looks } = rig(path, () => {
    throw new KubeError("forbidden", "endpointslices is forbidden");
  });
  await clock.advance(599_000);
  assert.equal(looks(), 1);
  await clock.advance(2000);
  await end();
  assert.equal(looks(), 2);
  assert.equal(lines.length, 1);
  assert.match(lines[0] ?? "", /"level":"debug".*is forbidden.*only the configured API servers are used/);
  assert.deepEqual([learnt, existsSync(path)], [[], false]);
});

test("ServerFollower: servers that do not change are passed on and written once; a slice without servers changes nothing", async (t) => {
  const path = join(folderOf(t), "p/api-servers.json");
  let now: object = slice(6443, ["10.0.0.2", "10.0.0.3"]);
  const { clock, learnt, end, looks } = rig(path, () => now);
  await clock.advance(1000);
  const { ino } = statSync(path);
  await clock.advance(120_000);
  now = slice(6443, []);
  await clock.advance(60_000);
  await end();
  assert.equal(looks(), 4);
  assert.deepEqual(learnt, ["10.0.0.2:6443 10.0.0.3:6443"]);
  assert.equal(statSync(path).ino, ino);
});

test("ServerFollower: the file of another configured server, or one that is none, is not used; one that cannot be written is said once", async (t) => {
  const folder = folderOf(t);
  const texts = ["", "{", "null", "[]", '{"of":"https://10.0.0.9:6443/","servers":["10.0.0.8:6443"]}', '{"servers":5}'];
  for (const [at, text] of texts.entries()) {
    const path = join(folder, `${at}.json`);
    writeFileSync(path, text);
    const { clock, learnt, end } = rig(path, () => slice(6443, ["10.0.0.2"]));
    await clock.advance(1000);
    await end();
    assert.deepEqual(learnt, ["10.0.0.2:6443"], text);
  }
  writeFileSync(join(folder, "file"), "");
  let last = 1;
  const { clock, lines, end } = rig(join(folder, "file/api-servers.json"), () => slice(6443, [`10.0.0.${++last}`]));
  await clock.advance(121_000);
  await end();
  assert.equal(lines.filter((line) => line.includes("cannot keep the API servers")).length, 1);
});

test("mayFollow: not behind a proxy, with a path prefix, without TLS or without its verification", () => {
  const direct = { server: new URL("https://10.0.0.1:6443"), insecureSkipTlsVerify: false };
  const proxy = { host: "p", port: 1 } as unknown as ReturnType<NonNullable<KubeConnection["proxyTo"]>>;
  assert.equal(mayFollow(direct), true);
  assert.equal(mayFollow({ ...direct, proxyTo: () => undefined }), true);
  assert.equal(mayFollow({ ...direct, proxyTo: () => proxy }), false);
  assert.equal(mayFollow({ ...direct, server: new URL("https://rancher/k8s/clusters/c") }), false);
  assert.equal(mayFollow({ ...direct, server: new URL("http://10.0.0.1:8080") }), false);
  assert.equal(mayFollow({ ...direct, insecureSkipTlsVerify: true }), false);
});
