import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { buildRelease, chooseRelease, commitOf, parseReleases, samePackages } from "./releases.ts";

const root = join(import.meta.dirname, "..");
const page = readFileSync(join(root, "docs/releases.md"), "utf8");

test("parseReleases: the page has every release with version, date and commit, and the version of this checkout is none of them", () => {
  const releases = parseReleases(page);
  assert.deepEqual(releases[0], {
    version: "0.1.0",
    date: "2026-11-25",
    commit: "8b2b94ad6b9f86369790a09a5754b8d9a96e0ef1",
  });
  const rows = page.split("\n").filter((line) => /^\| \d/.test(line));
  assert.equal(releases.length, rows.length);
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
  assert.ok(!releases.some((one) => one.version === version), version);
  const changelog = readFileSync(join(root, "CHANGELOG.md"), "utf8");
  for (const { version: one, date } of releases) assert.ok(changelog.includes(`\n## ${one} (${date})\n`), one);
});

test("chooseRelease: without a version it is the newest one, and an unknown one is refused with those that are known", () => {
  const releases = parseReleases(page);
  assert.equal(chooseRelease(releases, undefined), releases.at(-1));
  assert.throws(() => chooseRelease(releases, "9.9.9"), {
    code: "unknown",
    message: /no release 9\.9\.9; it has 0\.1\.0/,
  });
});

test("samePackages: only the version of the checkout itself may differ", () => {
  const lock = (version: string, koffi: string): string =>
    JSON.stringify({
      version,
      packages: { "": { name: "isthmus", version }, "node_modules/koffi": { version: koffi } },
    });
  assert.ok(samePackages(lock("0.1.0", "3"), lock("0.2.0", "3")));
  assert.ok(!samePackages(lock("0.1.0", "3"), lock("0.1.0", "4")));
});

test("commitOf: a tag is used where it is there, and a clone without the commit says how to fetch it", (t) => {
  const clone = mkdtempSync(join(tmpdir(), "isthmus-release-"));
  t.after(() => rmSync(clone, { recursive: true }));
  const git = (...args: string[]): string =>
    execFileSync("git", ["-C", clone, "-c", "user.name=t", "-c", "user.email=t@invalid", ...args], {
      encoding: "utf8",
      stdio: "pipe",
    });
  git("init");
  git("commit", "--allow-empty", "--message=one");
  const commit = git("rev-parse", "HEAD").trim();
  const absent = { version: "1.0.0", date: "2026-01-01", commit: "0123456789".repeat(4) };
  assert.equal(commitOf(clone, { ...absent, commit }), commit);
  assert.throws(() => commitOf(clone, absent), {
    code: "no-commit",
    message: /does not have commit 0123.* of release 1\.0\.0: git fetch --unshallow, or git fetch origin 0123/,
  });
  git("tag", "v1.0.0");
  assert.equal(commitOf(clone, absent), commit);
});

test("buildRelease: a folder that is built of the release's commit is used as it is, and a tree that cannot be built leaves nothing", (t) => {
  const clone = mkdtempSync(join(tmpdir(), "isthmus-release-"));
  t.after(() => rmSync(clone, { recursive: true }));
  const git = (...args: string[]): string =>
    execFileSync("git", ["-C", clone, "-c", "user.name=t", "-c", "user.email=t@invalid", ...args], {
      encoding: "utf8",
      stdio: "pipe",
    });
  git("init");
  git("commit", "--allow-empty", "--message=one");
  const release = { version: "1.0.0", date: "2026-01-01", commit: git("rev-parse", "HEAD").trim() };
  // A commit without our files.
  assert.throws(() => buildRelease(clone, release, () => undefined), { code: "not-built" });
  const releases = join(clone, ".state/releases");
  assert.equal(execFileSync("ls", ["-A", releases], { encoding: "utf8" }), "");
  mkdirSync(join(releases, "1.0.0"));
  writeFileSync(join(releases, "1.0.0/.commit"), release.commit);
  assert.equal(buildRelease(clone, release, assert.fail), join(releases, "1.0.0"));
});
