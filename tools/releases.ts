/** The table of `docs/releases.md`, and the trees that are built of it. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { ExpectedError } from "../src/base/errors/index.ts";

/**
 * - `unknown`: the table has no such release.
 * - `no-commit`: this clone does not have the release's commit.
 * - `not-built`: the release could not be built.
 */
export type ReleaseErrorCode = "unknown" | "no-commit" | "not-built";

/** A release that cannot be built here. */
export class ReleaseError extends ExpectedError<ReleaseErrorCode> {
  override readonly name = "ReleaseError";
}

/** A row of the table. */
export interface Release {
  readonly version: string;
  readonly date: string;
  /** 40 hexadecimal digits. */
  readonly commit: string;
}

/** Files of a release that its build and a lab of it need. */
const PARTS = ["src", "tools", "deploy", "package.json", "package-lock.json"];
/** Written last: a tree without it is not complete. */
const STAMP = ".commit";

/** Pure: the rows of the table, oldest first, as they are in the page. */
export function parseReleases(page: string): readonly Release[] {
  return page.split("\n").flatMap((line) => {
    const found = /^\| *(\d+\.\d+\.\d+) *\| *(\d{4}-\d\d-\d\d) *\| *([0-9a-f]{40}) *\|$/.exec(line);
    const [, version, date, commit] = found ?? [];
    return version === undefined || date === undefined || commit === undefined ? [] : [{ version, date, commit }];
  });
}

/** Pure: the release of a version; without a version the newest one. Throws {@link ReleaseError} `unknown`. */
export function chooseRelease(releases: readonly Release[], version: string | undefined): Release {
  const found = version === undefined ? releases.at(-1) : releases.find((one) => one.version === version);
  if (found !== undefined) return found;
  const known = releases.map((one) => one.version).join(", ");
  throw new ReleaseError("unknown", `docs/releases.md has no release ${version ?? ""}; it has ${known || "none"}`);
}

/** Pure: whether two package-lock.json have the same packages. The version of the checkout itself does not count. */
export function samePackages(one: string, other: string): boolean {
  const packagesOf = (text: string): string => {
    const { packages } = JSON.parse(text) as { readonly packages: Readonly<Record<string, object>> };
    return JSON.stringify({ ...packages, "": { ...packages[""], version: "" } });
  };
  return packagesOf(one) === packagesOf(other);
}

/**
 * The commit of a release: that of its tag, or of the table. Throws {@link ReleaseError} `no-commit` in a clone without it, and in a checkout
 * that is no clone.
 */
export function commitOf(root: string, { version, commit }: Release): string {
  const resolve = (name: string): string | undefined => {
    try {
      return git(root, ["rev-parse", "--verify", "--quiet", `${name}^{commit}`]).trim();
    } catch {
      return undefined;
    }
  };
  const found = resolve(`refs/tags/v${version}`) ?? resolve(commit);
  if (found !== undefined) return found;
  throw new ReleaseError(
    "no-commit",
    `this clone does not have commit ${commit} of release ${version}: git fetch --unshallow, or git fetch origin ${commit}`,
  );
}

/**
 * The folder with a built release, which is built first if it is not there. Throws {@link ReleaseError}. Two builds at once are harmless: each has
 * a folder of its own until it is complete.
 */
export function buildRelease(root: string, release: Release, say: (text: string) => void): string {
  const commit = commitOf(root, release);
  const folder = join(root, ".state/releases", release.version);
  const isBuilt = (): boolean =>
    existsSync(join(folder, STAMP)) && readFileSync(join(folder, STAMP), "utf8") === commit;
  if (isBuilt()) return folder;
  const work = `${folder}.${process.pid}`;
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  try {
    say(`release ${release.version}: taking commit ${commit.slice(0, 8)} from Git`);
    const archive = execFileSync("git", ["-C", root, "archive", commit, ...PARTS], { maxBuffer: 512 * 1024 * 1024 });
    execFileSync("tar", ["--extract", "--directory", work], { input: archive });
    for (const [place, lock] of [
      ["node_modules", "package-lock.json"],
      ["tools/runtime/node_modules", "tools/runtime/package-lock.json"],
    ] as const)
      bringPackages(root, work, { place, lock }, say);
    say(`release ${release.version}: building its programs`);
    execFileSync(process.execPath, ["tools/build.ts"], { cwd: work, stdio: ["ignore", "ignore", "inherit"] });
    writeFileSync(join(work, STAMP), commit);
    // Another process may have been faster.
    if (!isBuilt()) {
      rmSync(folder, { recursive: true, force: true });
      renameSync(work, folder);
    }
  } catch (error) {
    if (error instanceof ReleaseError) throw error;
    throw new ReleaseError("not-built", `release ${release.version} could not be built: ${(error as Error).message}`, {
      cause: error,
    });
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return folder;
}

/** This checkout's packages where the release pins the same ones, else its own. */
function bringPackages(
  root: string,
  work: string,
  { place, lock }: { readonly place: string; readonly lock: string },
  say: (text: string) => void,
): void {
  const [own, its] = [root, work].map((tree) => readFileSync(join(tree, lock), "utf8"));
  const target = join(work, place);
  if (own !== undefined && its !== undefined && samePackages(own, its) && existsSync(join(root, place))) {
    // The link is as deep in the tree when it is complete as while it is built.
    symlinkSync(relative(dirname(target), join(root, place)), target);
    return;
  }
  say(`it has other packages than this checkout (${lock}): npm ci`);
  const npm = join(root, "tools/runtime/node_modules/npm/bin/npm-cli.js");
  execFileSync(process.execPath, [npm, "ci", "--ignore-scripts"], {
    cwd: dirname(target),
    stdio: ["ignore", "ignore", "inherit"],
  });
}

function git(root: string, args: readonly string[]): string {
  return execFileSync("git", ["-C", root, ...args], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}
