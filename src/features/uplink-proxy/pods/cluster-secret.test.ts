import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger, nullLogger, Repeats } from "#base/log";
import type { KubeApi } from "#kube/client";
import { type ClusterSecret, Secrets } from "../policy/index.ts";
import { secretFromApi, secretFromFile } from "./cluster-secret.ts";

const GOOD = "0123456789abcdef0123456789abcdef";

/** A file and a Secret that can be changed, and the log of those who read them. */
function setUp(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "uplink-cluster-secret-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "secret");
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({ name: "pods", write: (line) => void lines.push(JSON.parse(line)) });
  const deps = { log, repeats: new Repeats() };
  const stored: { data: Readonly<Record<string, string>> } = { data: {} };
  const api: Pick<KubeApi, "get"> = {
    get: async () => ({ metadata: { name: "shared", namespace: "kube-system" }, data: stored.data }) as never,
  };
  return {
    folder,
    path,
    lines,
    fromFile: (content: string | Buffer): Promise<ClusterSecret> => {
      writeFileSync(path, content);
      return secretFromFile(path, deps);
    },
    fromApi: (secret: string | undefined): Promise<ClusterSecret> => {
      stored.data = secret === undefined ? {} : { secret };
      return secretFromApi(api, ["kube-system", "shared"], deps, new AbortController().signal);
    },
  };
}

test("cluster secret: 32 bytes and more are shared as they are; a file or Secret that does not exist is no secret", async (t) => {
  const { path, lines, fromFile, fromApi } = setUp(t);
  assert.deepEqual(await secretFromFile(path, { log: nullLogger, repeats: new Repeats() }), { kind: "standalone" });
  for (const content of [GOOD, `${GOOD}\n`, Buffer.alloc(48, 7)]) {
    const shared = { kind: "shared", secret: Buffer.from(content) };
    assert.deepEqual(await fromFile(content), shared);
    assert.deepEqual(await fromApi(Buffer.from(content).toString("base64")), shared);
  }
  assert.deepEqual(lines, []);
});

test("cluster secret: one that is empty, cut off or no base64 is unknown, and the log names it and the fix once", async (t) => {
  const { path, lines, fromFile, fromApi } = setUp(t);
  const told = () =>
    lines.splice(0).map(({ level, path, namespace, name, error }) => ({ level, path, namespace, name, error }));
  const isUnknown = async (...reads: Promise<ClusterSecret>[]): Promise<void> => {
    for (const read of reads) assert.deepEqual(await read, { kind: "unknown" });
  };
  const fix = 'give it at least 32 random bytes, the same on all nodes, as from "openssl rand -hex 32"';
  const ofFile = (found: string) => ({
    level: "error",
    path,
    namespace: undefined,
    name: undefined,
    error: `${found}: ${fix}`,
  });
  const ofSecret = (found: string) => ({ ...ofFile(found), path: undefined, namespace: "kube-system", name: "shared" });
  for (const bytes of [0, 0, 31]) await isUnknown(fromFile(GOOD.slice(0, bytes)));
  assert.deepEqual(told(), [ofFile("it has 0 bytes"), ofFile("it has 31 bytes")]);
  for (const bytes of [0, 0, 31]) await isUnknown(fromApi(Buffer.alloc(bytes, 7).toString("base64")));
  assert.deepEqual(told(), [ofSecret("it has 0 bytes"), ofSecret("it has 31 bytes")]);
  for (const text of [`${GOOD}${GOOD}!`, `${GOOD}${GOOD}0`]) await isUnknown(fromApi(text));
  assert.deepEqual(told(), [ofSecret("it is no base64")]);
  await isUnknown(fromApi(undefined));
  assert.deepEqual(told(), [ofSecret('it has no key "secret"')]);
  assert.equal((await fromFile(GOOD)).kind, "shared");
  await isUnknown(fromFile(""));
  assert.deepEqual(told(), [ofFile("it has 0 bytes")], "told again after it was right");
});

test("cluster secret: a node keeps its identity while the secret is empty", async (t) => {
  const { folder, fromFile, fromApi } = setUp(t);
  const dir = join(folder, "secrets");
  const content = (): string[] => readdirSync(dir).map((name) => readFileSync(join(dir, name), "utf8"));
  let current = (): Promise<ClusterSecret> => fromFile(GOOD);
  const address = IpAddress.parse("169.254.100.1");
  const secrets = new Secrets(
    { clock: new FakeClock(), log: nullLogger, clusterSecret: () => current() },
    { dir, address },
  );
  await secrets.sync();
  const before = { files: content(), tokens: secrets.tokens };
  assert.equal(before.files.length, 4);
  for (const empty of [() => fromFile(""), () => fromApi("")]) {
    current = empty;
    await secrets.sync();
    assert.deepEqual({ files: content(), tokens: secrets.tokens }, before);
  }
});
