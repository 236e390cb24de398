/**
 * Runs the tests, tier by tier, and prints the files that took the most time and processor, and `N passed, N failed, N skipped` last.
 *
 *     node tools/test.ts [TIER...] [--only=PART[,PART]] [--changed]
 *
 * `--changed` runs the tests of modules that differ from `origin/main` (if it does not exist: from the last commit), and of all modules
 * that import these.
 *
 * With CI=true a skipped test counts as failed, unless its reason names a kernel or a package that cannot be had
 * (`kernel: ...`, `package: ...`).
 */
import { execFileSync, spawn } from "node:child_process";
import { globSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { join, relative } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { rightsFaults } from "./check-rights.ts";
import { dependentsOf, importsOf, moduleOf } from "./modules.ts";

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  /** What failed and why, in the order of the run. */
  readonly failures: string[];
  /** Time of each file, in milliseconds. */
  readonly files: Map<string, number>;
}

const root = join(import.meta.dirname, "..");
/** The files of each tier, as a pattern. */
const TIERS = {
  unit: "{src,tools}/**/*.test.ts",
  netns: "{src,test}/**/*.netns.test.ts",
  cluster: "test/cluster/**/*.cluster.test.ts",
  conformance: "test/conformance/**/*.conformance.test.ts",
  neutron: "test/neutron/**/*.neutron.test.ts",
  vm: "test/vm/**/*.vm.test.ts",
} as const;
/**
 * The number of concurrent files: two and a half for each processor, because most of them wait more than half of the time. On a given cluster
 * each file has the definitions, pools and addresses for itself.
 */
const AT_ONCE = process.env["ISTHMUS_KUBECONFIG"] === undefined ? Math.ceil(2.5 * availableParallelism()) : 1;
/** The number of concurrent quiet files, beside one that runs in turn: together they use half of the processors. */
const QUIET_AT_ONCE = availableParallelism() + 1;
/** Processes that share the files of the unit tier. */
const PROCESSES = 12;
const FILE_TIMEOUT_MS = 400_000;
/**
 * How the guest runs: in time that nobody else wants (SCHED_IDLE of sched(7)). It emulates a processor and never waits, so beside files that
 * measure time it would take what they need a moment later.
 */
const AT_REST = ["chrt", "--idle", "0"] as const;
/** The endings of the tiers that need more than a machine with Node. */
const PRIVILEGED = /\.(netns|cluster|conformance|neutron|vm)\.test\.ts$/;
/**
 * How a file runs, by a line `// KIND: reason` in it. `alone`: it measures time or memory or looks at the whole machine, and keeps the
 * processor busy; it runs by itself after the others. `quiet`: it measures time and uses little of the processor; it runs beside other such
 * files. `in turn`: it needs the processor now and then within seconds; it runs beside quiet files, one such file at a time. `own process`:
 * it looks at its process and shares it with no other file.
 */
const KIND = /^\/\/ (alone|quiet|in turn|own process): /m;
/** The lines of the reporter's totals. */
const TOTALS = /^ℹ (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) .*\n/gm;
/** Number of files that are named at the end. */
const SLOWEST = 10;
/** Characters of a failure's reason in the list at the end. */
const LONGEST_REASON = 400;
const ALLOWED_SKIP = /^(kernel|package): /;

function filesOf(pattern: string, name: string): string[] {
  return globSync(pattern, { cwd: root })
    .filter((file) => name !== "unit" || !PRIVILEGED.test(file))
    .filter((file) => only.split(",").some((part) => file.includes(part)))
    .sort()
    .map((file) => join(root, file));
}

/**
 * Distributes files over entries that load them, each entry a process. The start of a process and the modules that most files import cost
 * more than most files' tests.
 */
function entriesFor(files: readonly string[]): string[] {
  const folder = join(root, ".state/test-entries");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const shares = Array.from({ length: PROCESSES }, (_, at) => files.filter((_file, index) => index % PROCESSES === at));
  return shares
    .filter((share) => share.length > 0)
    .map((share, at) => {
      const entry = join(folder, `${at}.test.ts`);
      const suites = share.map(
        (file) =>
          `describe(${JSON.stringify(relative(root, file))}, async () => void (await import(${JSON.stringify(file)})));`,
      );
      writeFileSync(entry, ['import { describe } from "node:test";', ...suites, ""].join("\n"));
      return entry;
    });
}

function fail(counts: Counts, text: string): void {
  counts.failed += 1;
  counts.failures.push(text);
}

/** The reason of a failed test on one line; for a file whose process failed, with its exit code and signal. */
function reasonOf(error: Error): string {
  const { cause = error } = error;
  const ends = cause as { readonly exitCode?: number | null; readonly signal?: string | null };
  const end = ends.exitCode === undefined ? "" : ` (exit code ${ends.exitCode}, signal ${ends.signal})`;
  const text = cause instanceof Error ? cause.message : String(cause);
  return `${text.replaceAll(/\s+/g, " ").slice(0, LONGEST_REASON)}${end}`;
}

async function runFiles(files: readonly string[], concurrency: number, counts: Counts): Promise<void> {
  if (files.length === 0) return;
  const execArgv = ["compile-cache.mjs", "processor-log.ts", "test-end.ts"].map(
    (name) => `--import=${join(root, "tools", name)}`,
  );
  const stream = run({ files: [...files], concurrency, timeout: FILE_TIMEOUT_MS, execArgv });
  const time = (event: {
    readonly nesting: number;
    readonly name: string;
    readonly details: { duration_ms: number };
  }) => {
    if (event.nesting === 0 && event.name.endsWith(".test.ts")) counts.files.set(event.name, event.details.duration_ms);
  };
  stream.on("test:pass", (event) => {
    if (event.details.type === "suite") return time(event);
    if (event.skip === undefined && event.todo === undefined) {
      counts.passed += 1;
    } else if (process.env["CI"] === "true" && !ALLOWED_SKIP.test(String(event.skip))) {
      fail(
        counts,
        `a test was skipped for a reason that is neither a kernel nor a package: ${event.name} (${event.skip})`,
      );
    } else {
      counts.skipped += 1;
    }
  });
  stream.on("test:summary", ({ file, duration_ms }) => {
    if (file !== undefined && !file.includes("/.state/")) counts.files.set(relative(root, file), duration_ms);
  });
  stream.on("test:fail", (event) => {
    if (event.details.type === "suite") time(event);
    else fail(counts, `${relative(root, event.file ?? "")}: ${event.name}: ${reasonOf(event.details.error)}`);
  });
  // Not the reporter's own totals: those come once, last, for all tiers.
  for await (const text of stream.compose(new spec())) process.stdout.write(String(text).replace(TOTALS, ""));
}

/** Files of a tier by their kind. */
function kindsOf(files: readonly string[]): Record<string, readonly string[]> {
  return Object.fromEntries(Map.groupBy(files, (file) => KIND.exec(readFileSync(file, "utf8"))?.[1] ?? "ordinary"));
}

/**
 * The vm tier runs its files inside one guest, in the time that other tests leave; the guest's runner prints TAP-like totals that are added
 * up here.
 */
async function runGuest(counts: Counts, files: readonly string[]): Promise<void> {
  const names = files.map((file) => relative(root, file));
  const argv = [join(root, "tools/vm/run.ts"), `--timeout=${(2 * FILE_TIMEOUT_MS) / 1000}`, ...names];
  const [chrt, ...rest] = AT_REST;
  const child = spawn(chrt, [...rest, process.execPath, ...argv], { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  process.stdout.write(output);
  const total = (name: string): number => Number(new RegExp(`^(?:#|ℹ) ${name} (\\d+)`, "m").exec(output)?.[1] ?? 0);
  counts.passed += total("pass");
  counts.failed += total("fail");
  counts.skipped += total("skipped");
  for (const [, name] of output.matchAll(/^\s*(?:not ok \d+ -|✖) (.*)$/gm))
    counts.failures.push(`in the guest: ${name}`);
  if (code !== 0 && total("fail") === 0) fail(counts, `the guest's test run ended with code ${code}`);
}

/** The modules that `--changed` selects; a changed test file outside of `src` selects its own folder. */
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
const counts: Counts = { passed: 0, failed: 0, skipped: 0, failures: [], files: new Map() };
const start = performance.now();
/** Where API servers write what programs asked for. */
const accessLog = join(root, ".state/access-log");
rmSync(accessLog, { recursive: true, force: true });
process.env["ISTHMUS_ACCESS_LOG"] = accessLog;

/** Where test processes write how long they had a processor. */
const processorLog = join(root, ".state/processor-log");
rmSync(processorLog, { recursive: true, force: true });
mkdirSync(processorLog, { recursive: true });
process.env["ISTHMUS_PROCESSOR_LOG"] = processorLog;

/** Seconds of a processor by file; the files of the unit tier that share processes are counted together. */
function processorSeconds(): ReadonlyMap<string, number> {
  const seconds = new Map<string, number>();
  for (const name of readdirSync(processorLog)) {
    const [, used = "0", path = ""] = /^(\S+) (.*)\n/.exec(readFileSync(join(processorLog, name), "utf8")) ?? [];
    const file = path.includes("/.state/") ? "files of the unit tier that share processes" : relative(root, path);
    seconds.set(file, (seconds.get(file) ?? 0) + Number(used));
  }
  return seconds;
}

function chosen(name: keyof typeof TIERS): readonly string[] {
  if (asked.length > 0 && !asked.includes(name)) return [];
  return filesOf(TIERS[name], name).filter((file) => changed?.has(moduleOf(relative(root, file))) !== false);
}

/** Time that all processors of this machine have worked since its start, in seconds. */
function busySeconds(): number {
  return cpus().reduce((sum, { times }) => sum + times.user + times.nice + times.sys + times.irq, 0) / 1000;
}

/** One part of the run; prints how many files it has, how long they took, and how much of the processors was in use. */
async function part(name: string, files: readonly string[], run: () => Promise<unknown>): Promise<void> {
  if (files.length === 0) return;
  const partStart = performance.now();
  const busyBefore = busySeconds();
  console.log(`== ${name}: ${files.length} files`);
  await run();
  const seconds = (performance.now() - partStart) / 1000;
  const busy = (busySeconds() - busyBefore) / (seconds * availableParallelism());
  console.log(`== ${name}: ${seconds.toFixed(1)} s, ${(busy * 100).toFixed(0)} % of the processors`);
}

const unit = kindsOf(chosen("unit"));
const ofUnit = [...entriesFor(unit["ordinary"] ?? []), ...(unit["own process"] ?? []), ...(unit["quiet"] ?? [])];
// Files of all tiers share the processors best when they are one queue, the longest first: those that start clusters and clouds.
const tiers = (["cluster", "neutron", "conformance", "netns"] as const).filter((name) => chosen(name).length > 0);
const kinds = kindsOf(tiers.flatMap(chosen));
const { ordinary = [], quiet = [], "in turn": inTurn = [], alone = [], "own process": own = [] } = kinds;
const isLong = (file: string): boolean => /\.(cluster|neutron)\.test\.ts$/.test(file);
const queued = [...ordinary.filter(isLong), ...ofUnit, ...ordinary.filter((file) => !isLong(file)), ...own];
const title = [...(ofUnit.length > 0 ? ["unit"] : []), ...tiers].join(", ");
await part(title, queued, () => runFiles(queued, AT_ONCE, counts));
await part("unit: files that run alone", unit["alone"] ?? [], () => runFiles(unit["alone"] ?? [], 1, counts));
// Files that measure time leave half of the processors, and the guest gets that half.
const guest = part("vm", chosen("vm"), () => runGuest(counts, chosen("vm")));
await part(`${title}: files that measure time and are quiet, and those that run in turn`, [...quiet, ...inTurn], () =>
  Promise.all([runFiles(quiet, QUIET_AT_ONCE, counts), runFiles(inTurn, 1, counts)]),
);
await part(`${title}: files that run alone`, alone, () => runFiles(alone, 1, counts));
await guest;
// Only all tests together use every right.
if (asked.length === 0 && only === "" && changed === undefined) {
  const faults = rightsFaults(accessLog);
  if (faults.length === 0) counts.passed += 1;
  for (const fault of faults) fail(counts, `the rights of the manifests: ${fault}`);
}
if (counts.passed + counts.failed === 0 && changed === undefined) {
  fail(counts, "no test ran");
}
console.log("the slowest files:");
for (const [file, ms] of [...counts.files].sort(([, one], [, other]) => other - one).slice(0, SLOWEST))
  console.log(`  ${(ms / 1000).toFixed(1).padStart(6)} s  ${file}`);
const used = processorSeconds();
console.log(
  `the files that used the most of ${Array.from(used.values())
    .reduce((sum, one) => sum + one, 0)
    .toFixed(0)} s of processor:`,
);
for (const [file, seconds] of [...used].sort(([, one], [, other]) => other - one).slice(0, SLOWEST))
  console.log(`  ${seconds.toFixed(1).padStart(6)} s  ${file}`);
for (const failure of counts.failures) console.log(`failed: ${failure}`);
console.log(`all tiers: ${((performance.now() - start) / 1000).toFixed(1)} s`);
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exitCode = counts.failed === 0 ? 0 : 1;
