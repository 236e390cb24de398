import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { type ClusterSecret, deriveIdentity, freshIdentity, Secrets } from "./index.ts";

const ADDRESS = IpAddress.parse("169.254.100.1");
const SHARED: ClusterSecret = { kind: "shared", secret: Buffer.from("a secret of the cluster") };

function dirFor(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), "uplink-secrets-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return join(dir, "secrets");
}

function secretsIn(dir: string, cluster: { current: ClusterSecret }, clock = new FakeClock()): Secrets {
  return new Secrets({ clock, log: nullLogger, clusterSecret: async () => cluster.current }, { dir, address: ADDRESS });
}

test("identity: the same from the same secret, another from another, and never two alike without one", () => {
  const secret = Buffer.from("x");
  assert.deepEqual(deriveIdentity(secret, ADDRESS), deriveIdentity(secret, ADDRESS));
  assert.notEqual(deriveIdentity(Buffer.from("y"), ADDRESS).token, deriveIdentity(secret, ADDRESS).token);
  assert.notDeepEqual(freshIdentity(ADDRESS), freshIdentity(ADDRESS));
  assert.match(freshIdentity(ADDRESS).token, /^[0-9a-f]{64}$/);
});

test("identity: versions derive the same bytes from the same secret, since nodes of one cluster run several at once", () => {
  const { cert, key, token } = deriveIdentity(Buffer.from("x"), ADDRESS);
  const digest = createHash("sha256").update(cert).update(key).update(token).digest("hex");
  assert.equal(digest, "5edc01572b8275fd382078c2122eac34deead307d537047f3a8b8ef900bed61f");
});

test("identity: the certificate is an authority for a server at the address, and openssl trusts it by itself", (t) => {
  const { cert, key } = deriveIdentity(Buffer.from("x"), ADDRESS);
  const parsed = new X509Certificate(cert);
  assert.equal(parsed.ca, true);
  assert.equal(parsed.checkIP("169.254.100.1"), "169.254.100.1");
  assert.equal(parsed.checkIP("169.254.100.2"), undefined);
  assert.deepEqual(parsed.keyUsage, ["1.3.6.1.5.5.7.3.1"]);
  assert.equal(parsed.validToDate.getUTCFullYear(), 9999);
  assert.ok(parsed.verify(parsed.publicKey));
  assert.match(key, /BEGIN PRIVATE KEY/);
  const dir = mkdtempSync(join(tmpdir(), "uplink-cert-"));
  t.after(() => rmSync(dir, { recursive: true }));
  writeFileSync(join(dir, "ca.pem"), cert);
  const said = execFileSync(
    "openssl",
    ["verify", "-x509_strict", "-CAfile", "ca.pem", "-purpose", "sslserver", "ca.pem"],
    {
      cwd: dir,
      encoding: "utf8",
    },
  );
  assert.equal(said, "ca.pem: OK\n");
});

test("Secrets: made once with modes 0700 and 0600, found again, made anew when any file is missing or damaged", async (t) => {
  const dir = dirFor(t);
  const cluster = { current: { kind: "standalone" } satisfies ClusterSecret };
  const first = secretsIn(dir, cluster);
  assert.equal(first.tokens, undefined);
  await first.sync();
  assert.deepEqual(readdirSync(dir).sort(), ["ca.pem", "key.pem", "token"]);
  assert.equal(statSync(dir).mode & 0o777, 0o700);
  for (const name of readdirSync(dir)) assert.equal(statSync(join(dir, name)).mode & 0o777, 0o600, name);
  const again = secretsIn(dir, cluster);
  await again.sync();
  assert.deepEqual(again.tokens, first.tokens);
  for (const name of ["ca.pem", "key.pem", "token"]) {
    const before = readFileSync(join(dir, "token"), "utf8");
    rmSync(join(dir, name));
    await secretsIn(dir, cluster).sync();
    assert.notEqual(readFileSync(join(dir, "token"), "utf8"), before, name);
    writeFileSync(join(dir, name), "damaged");
    const repaired = secretsIn(dir, cluster);
    await repaired.sync();
    assert.match(repaired.tokens?.[0] ?? "", /^[0-9a-f]{64}$/, name);
    assert.notEqual(readFileSync(join(dir, name), "utf8"), "damaged", name);
  }
});

test("Secrets: a cluster's are the same on each node, marked, and wiped when the node leaves", async (t) => {
  const cluster: { current: ClusterSecret } = { current: SHARED };
  const [one, two] = [dirFor(t), dirFor(t)];
  const first = secretsIn(one, cluster);
  const second = secretsIn(two, cluster);
  await first.sync();
  await second.sync();
  assert.deepEqual(first.tokens, second.tokens);
  assert.equal(first.certificate, second.certificate);
  assert.ok(readdirSync(one).includes("cluster-wide"));
  const shared = first.tokens?.[0] ?? "";
  cluster.current = { kind: "unknown" };
  await first.sync();
  assert.deepEqual(first.tokens, [shared]);
  cluster.current = { kind: "standalone" };
  await first.sync();
  assert.ok(!readdirSync(one).includes("cluster-wide"));
  assert.ok(!readFileSync(join(one, "token"), "utf8").includes(shared));
});

test("Secrets: the token of before is accepted for ten minutes after it was replaced", async (t) => {
  const clock = new FakeClock();
  const cluster: { current: ClusterSecret } = { current: SHARED };
  const secrets = secretsIn(dirFor(t), cluster, clock);
  await secrets.sync();
  const [old = ""] = secrets.tokens ?? [];
  let changes = 0;
  secrets.onChange = () => {
    changes += 1;
  };
  cluster.current = { kind: "shared", secret: Buffer.from("another") };
  await secrets.sync();
  await secrets.sync();
  assert.equal(changes, 1);
  assert.equal(secrets.tokens?.length, 2);
  assert.ok(secrets.tokens?.includes(old));
  await clock.advance(600_000);
  assert.equal(secrets.tokens?.length, 1);
  assert.ok(!secrets.tokens?.includes(old));
});

test("Secrets: a directory that cannot be written is no end of the program", async (t) => {
  const notDirectory = dirFor(t);
  writeFileSync(notDirectory, "");
  const secrets = secretsIn(join(notDirectory, "secrets"), { current: { kind: "standalone" } });
  await secrets.sync();
  assert.equal(secrets.tokens, undefined);
});

test("Secrets: files that others may read are closed to them and logged, and stay in use", async (t) => {
  const dir = dirFor(t);
  const cluster = { current: { kind: "standalone" } satisfies ClusterSecret };
  const first = secretsIn(dir, cluster);
  await first.sync();
  const modes = (): number[] => ["", "token", "key.pem"].map((name) => statSync(join(dir, name)).mode & 0o777);
  chmodSync(dir, 0o755);
  for (const name of ["token", "key.pem"]) chmodSync(join(dir, name), 0o644);
  const lines: string[] = [];
  const log = createLogger({ name: "s", write: (line) => void lines.push(line) });
  const deps = { clock: new FakeClock(), log, clusterSecret: async () => cluster.current };
  const second = new Secrets(deps, { dir, address: ADDRESS });
  await second.sync();
  assert.deepEqual(modes(), [0o700, 0o600, 0o600]);
  assert.deepEqual(second.tokens, first.tokens);
  assert.match(lines.join(), /removed the permissions of other users/);
  lines.length = 0;
  await second.sync();
  assert.deepEqual(lines, []);
});
