/**
 * Runs the tests, tier by tier, and prints the slowest files and `N passed, N failed, N skipped` last.
 *
 *     node tools/test.ts [TIER...] [--only=PART[,PART]] [--changed]
 *
 * `--changed` runs the tests of modules that differ from `origin/main` (where there is none: from the last commit), and of all modules that
 * import these.
 *
 * With CI=true a skipped test counts as failed, unless its reason names a kernel or a package that cannot be had
 * (`kernel: ...`, `package: ...`).
 */
import { execFileSync, spawn } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { dependentsOf, importsOf, moduleOf } from "./modules.ts";

interface Tier {
  readonly files: string;
  /** Test files at once. A file that has an `// alone: …` line measures time or memory or looks at the whole machine, and runs by itself after the others. */
  readonly concurrency: number;
  readonly timeoutMs: number;
}

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  /** Time of each file, milliseconds. */
  readonly files: Map<string, number>;
}

const root = join(import.meta.dirname, "..");
const TIERS: Readonly<Record<string, Tier>> = {
  unit: { files: "{src,tools,test/fuzz}/**/*.test.ts", concurrency: 2, timeoutMs: 120_000 },
  netns: { files: "{src,test}/**/*.netns.test.ts", concurrency: 3, timeoutMs: 120_000 },
  cluster: { files: "test/cluster/**/*.cluster.test.ts", concurrency: 2, timeoutMs: 400_000 },
  conformance: { files: "test/conformance/**/*.conformance.test.ts", concurrency: 2, timeoutMs: 400_000 },
  vm: { files: "test/vm/**/*.vm.test.ts", concurrency: 1, timeoutMs: 400_000 },
};
/** The endings of the tiers that need more than a machine with Node. */
const PRIVILEGED = /\.(netns|cluster|conformance|vm)\.test\.ts$/;
const ALONE = /^\/\/ alone: /m;
/** So many files are named at the end. */
const SLOWEST = 10;
const ALLOWED_SKIP = /^(kernel|package): /;

function filesOf(name: string, tier: Tier, only: string): string[] {
  return globSync(tier.files, { cwd: root })
    .filter((file) => name !== "unit" || !PRIVILEGED.test(file))
    .filter((file) => only.split(",").some((part) => file.includes(part)))
    .sort()
    .map((file) => join(root, file));
}

async function runFiles(
  files: readonly string[],
  { concurrency, timeoutMs }: Pick<Tier, "concurrency" | "timeoutMs">,
  counts: Counts,
): Promise<void> {
  if (files.length === 0) return;
  const stream = run({ files: [...files], concurrency, timeout: timeoutMs });
  stream.on("test:pass", (event) => {
    if (event.details.type === "suite") return;
    if (event.skip === undefined && event.todo === undefined) {
      counts.passed += 1;
    } else if (process.env["CI"] === "true" && !ALLOWED_SKIP.test(String(event.skip))) {
      counts.failed += 1;
      console.log(`a skip that names neither a kernel nor a package: ${event.name} (${event.skip})`);
    } else {
      counts.skipped += 1;
    }
  });
  stream.on("test:summary", ({ file, duration_ms }) => {
    if (file !== undefined) counts.files.set(relative(root, file), duration_ms);
  });
  stream.on("test:fail", (event) => {
    if (event.details.type !== "suite") counts.failed += 1;
  });
  // Not the reporter's own totals: those come once, last, for all tiers.
  for await (const text of stream.compose(new spec())) process.stdout.write(String(text).replace(/^ℹ .*\n/gm, ""));
}

/** The vm tier runs its files inside one guest; the guest's runner prints TAP-like totals that are added up here. */
async function runGuest(counts: Counts, files: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, [join(root, "tools/vm/run.ts"), ...files.map((file) => relative(root, file))], {
    cwd: root,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    process.stdout.write(text);
  });
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  const total = (name: string): number => Number(new RegExp(`^(?:#|ℹ) ${name} (\\d+)`, "m").exec(output)?.[1] ?? 0);
  counts.passed += total("pass");
  counts.failed += total("fail");
  counts.skipped += total("skipped");
  if (code !== 0 && total("fail") === 0) {
    counts.failed += 1;
    console.log(`the guest's test run ended with code ${code}`);
  }
}

/** The modules that `--changed` means; test files outside of `src` that changed are of their own folder. */
function changedModules(): ReadonlySet<string> {
  const git = (...words: readonly string[]): string =>
    execFileSync("git", words, { cwd: root, encoding: "utf8" }).trim();
  const branches = git("for-each-ref", "--format=%(refname:short)", "refs/remotes/origin/main");
  const base = branches === "" ? "HEAD" : git("merge-base", "HEAD", branches);
  const files = [git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard")]
    .join("\n")
    .split("\n");
  return dependentsOf(files.filter((file) => file !== "").map(moduleOf), importsOf(root));
}

const USAGE = `usage: node tools/test.ts [TIER...] [--only=PART[,PART]] [--changed]; tiers: ${Object.keys(TIERS).join(" ")} (default: all)`;
const flags = process.argv
  .slice(2)
  .filter((word) => word.startsWith("-") && word !== "--changed" && !word.startsWith("--only="));
if (flags.length > 0) {
  console.error(flags.includes("--help") || flags.includes("-h") ? USAGE : `unknown flag ${flags.join(" ")}; ${USAGE}`);
  process.exit(flags.includes("--help") || flags.includes("-h") ? 0 : 2);
}
const only = process.argv.find((word) => word.startsWith("--only="))?.slice("--only=".length) ?? "";
const asked = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const unknown = asked.filter((name) => !Object.hasOwn(TIERS, name));
if (unknown.length > 0) {
  console.error(`there is no tier ${unknown.join(", ")}; tiers: ${Object.keys(TIERS).join(" ")}`);
  process.exit(2);
}
const changed = process.argv.includes("--changed") ? changedModules() : undefined;
const counts: Counts = { passed: 0, failed: 0, skipped: 0, files: new Map() };
const start = performance.now();
for (const [name, tier] of Object.entries(TIERS)) {
  if (asked.length > 0 && !asked.includes(name)) continue;
  const files = filesOf(name, tier, only).filter((file) => changed?.has(moduleOf(relative(root, file))) !== false);
  if (files.length === 0) continue;
  const tierStart = performance.now();
  console.log(`== ${name}: ${files.length} files`);
  if (name === "vm") await runGuest(counts, files);
  else {
    const alone = new Set(files.filter((file) => ALONE.test(readFileSync(file, "utf8"))));
    await runFiles(
      files.filter((file) => !alone.has(file)),
      tier,
      counts,
    );
    await runFiles([...alone], { ...tier, concurrency: 1 }, counts);
  }
  console.log(`== ${name}: ${((performance.now() - tierStart) / 1000).toFixed(1)} s`);
}
if (counts.passed + counts.failed === 0 && changed === undefined) {
  console.log("no test ran");
  counts.failed += 1;
}
console.log("the slowest files:");
for (const [file, ms] of [...counts.files].sort(([, one], [, other]) => other - one).slice(0, SLOWEST))
  console.log(`  ${(ms / 1000).toFixed(1).padStart(6)} s  ${file}`);
console.log(`all tiers: ${((performance.now() - start) / 1000).toFixed(1)} s`);
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed === 0 ? 0 : 1;
