import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { makeCertificates } from "#test/certificates";
import { trustedForClients } from "./authorities.ts";
import { TlsFiles } from "./tls-files.ts";

const { ca: authority, pairs } = makeCertificates("authority", { one: [], two: [] });
const ca = trustedForClients(authority);

function folder(t: TestContext) {
  const path = mkdtempSync(join(tmpdir(), "isthmus-tls-files-"));
  t.after(() => rmSync(path, { recursive: true }));
  const write = (name: string, content: string): string => {
    writeFileSync(join(path, name), content);
    return join(path, name);
  };
  const use = ({ cert, key }: { readonly cert: string; readonly key: string }) => ({
    cert: write("tls.crt", cert),
    key: write("tls.key", key),
  });
  return { path, write, use, paths: { ...use(pairs.one), clientCa: write("ca.crt", authority) } };
}

test("TlsFiles: new files are read within a second, and only then reported as changed", async (t) => {
  const { paths, use } = folder(t);
  const clock = new FakeClock();
  const files = new TlsFiles(paths, { clock });
  assert.deepEqual(files.material, { ...pairs.one, ca });
  use(pairs.two);
  assert.equal(files.refresh(), false, "looked at a moment ago");
  await clock.advance(1000);
  assert.equal(files.refresh(), true);
  assert.deepEqual(files.material, { ...pairs.two, ca });
  await clock.advance(1000);
  assert.equal(files.refresh(), false);
});

test("TlsFiles: files that are invalid, incomplete or gone are reported once, and the old ones stay in use", async (t) => {
  const { paths, write, use } = folder(t);
  const clock = new FakeClock();
  const told: string[] = [];
  const files = new TlsFiles(paths, { clock, onBroken: (why) => told.push(why) });
  const states = [
    () => write("tls.key", pairs.two.key),
    () => write("tls.key", "-----BEGIN PRIVATE KEY-----\n"),
    () => write("ca.crt", ""),
    () => write("ca.crt", `${authority}-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n${authority}`),
    () => unlinkSync(paths.cert),
  ];
  for (const change of states) {
    change();
    await clock.advance(1000);
    assert.equal(files.refresh(), false);
    await clock.advance(1000);
    assert.equal(files.refresh(), false);
    assert.deepEqual(files.material, { ...pairs.one, ca });
  }
  assert.equal(told.length, 5);
  assert.match(told[0] ?? "", /^cannot use .*tls\.crt, .*tls\.key, .*ca\.crt: /);
  assert.match(told[4] ?? "", /^cannot read .*tls\.crt: .*ENOENT/);
  write("ca.crt", authority);
  use(pairs.two);
  await clock.advance(1000);
  assert.equal(files.refresh(), true);
});

test("TlsFiles: a key that could not be read once is used as soon as it can be, also if the file is the same", async (t) => {
  const { path, paths, use } = folder(t);
  chmodSync(path, 0o755);
  const clock = new FakeClock();
  const told: string[] = [];
  const files = new TlsFiles(paths, { clock, onBroken: (why) => told.push(why) });
  use(pairs.two);
  chmodSync(paths.key, 0);
  for (let check = 0; check < 3; check += 1) {
    await clock.advance(1000);
    assert.equal(
      withoutPrivilege(() => files.refresh()),
      false,
    );
  }
  assert.equal(told.length, 1);
  assert.match(told[0] ?? "", /^cannot read .*tls\.key: .*EACCES/);
  // Root may read it as it is.
  if (process.geteuid?.() !== 0) chmodSync(paths.key, 0o600);
  await clock.advance(1000);
  assert.equal(files.refresh(), true);
  assert.deepEqual(files.material, { ...pairs.two, ca });
});

test("TlsFiles: a new mode or owner of a file is a change", async (t) => {
  const { paths } = folder(t);
  const clock = new FakeClock();
  const files = new TlsFiles(paths, { clock });
  await clock.advance(1000);
  assert.equal(files.refresh(), false);
  chmodSync(paths.key, 0o640);
  await clock.advance(1000);
  assert.equal(files.refresh(), true);
});

test("TlsFiles: files of which the kernel tells nothing are reported, and never thrown", async (t) => {
  const { paths, use } = folder(t);
  const clock = new FakeClock();
  const told: string[] = [];
  const files = new TlsFiles(paths, { clock, onBroken: (why) => told.push(why) });
  renameSync(paths.cert, `${paths.cert}.old`);
  symlinkSync(paths.cert, paths.cert);
  for (let check = 0; check < 2; check += 1) {
    await clock.advance(1000);
    assert.equal(files.refresh(), false);
  }
  assert.equal(told.length, 1);
  assert.match(told[0] ?? "", /^cannot read .*tls\.crt: .*ELOOP/);
  assert.throws(() => new TlsFiles(paths, { clock }), { name: "TlsFilesError", code: "unreadable" });
  unlinkSync(paths.cert);
  use(pairs.two);
  await clock.advance(1000);
  assert.equal(files.refresh(), true);
});

/** Runs the function as a user that is not root. */
function withoutPrivilege<T>(run: () => T): T {
  if (process.geteuid?.() !== 0) return run();
  process.seteuid?.(65_534);
  try {
    return run();
  } finally {
    process.seteuid?.(0);
  }
}

test("TlsFiles: a server does not start with unusable files", (t) => {
  const { paths, write } = folder(t);
  const clock = systemClock;
  assert.throws(() => new TlsFiles({ ...paths, cert: "/nowhere" }, { clock }), {
    name: "TlsFilesError",
    code: "unreadable",
  });
  assert.throws(() => new TlsFiles({ ...paths, key: write("other.key", pairs.two.key) }, { clock }), {
    code: "invalid",
  });
  assert.throws(() => new TlsFiles({ ...paths, clientCa: write("empty.crt", "\n") }, { clock }), /has no PEM block/);
});
