/**
 * Runs the tests, tier by tier, and prints the files that took the most time and processor, and `N passed, N failed, N skipped` last.
 *
 *     node tools/test.ts [TIER...] [--only=PART[,PART]] [--changed]
 *
 * `--changed` runs the tests that depend on files which differ from `origin/main` (if it does not exist: from the last commit);
 * `changed.ts` says what depends on what.
 *
 * A file that failed runs once more, by itself, at the end. If it passes then, the last lines and `.state/passed-only-alone.txt` name it. With
 * CI=true up to three such files do not fail the run, unless `docs/flaky.md` lists one of them.
 *
 * With CI=true a skipped test counts as failed, unless its reason names a kernel or a package that cannot be had
 * (`kernel: ...`, `package: ...`).
 *
 * ISTHMUS_TEST_ROOT names another checkout whose tests run; tests of this program use it.
 */
import "./require-node.ts";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { join, relative } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { testsOfChanges } from "./changed.ts";
import { rightsFaults } from "./check-rights.ts";
import { interleaved } from "./schedule.ts";
import { failuresOfGuest, faultsOf, listedFiles, Outcomes, RERUN_FILES, type TestResult } from "./test-outcomes.ts";

/** Results of a run. */
interface Results {
  readonly outcomes: Outcomes;
  /** Time of each file, in milliseconds. */
  readonly files: Map<string, number>;
  /** Failures that are no file's: of processes that files share, of the guest, of rights. */
  readonly others: string[];
}

const root = process.env["ISTHMUS_TEST_ROOT"] ?? join(import.meta.dirname, "..");
const isCI = process.env["CI"] === "true";
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
 * The number of concurrent files: two for each processor, because most of them wait half of the time. With more they are not faster (two and a half use 98 % of two
 * processors), and each waits longer for what it expects. On a given cluster each file has the definitions, pools and addresses for itself.
 */
const AT_ONCE = process.env["ISTHMUS_KUBECONFIG"] === undefined ? 2 * availableParallelism() : 1;
/** The number of concurrent quiet files, beside those that run in turn. */
const QUIET_AT_ONCE = availableParallelism();
/** The number of concurrent files that run in turn: together with the quiet ones they use two thirds of the processors. */
const IN_TURN_AT_ONCE = 2;
/** Processes that share the files of the unit tier. */
const PROCESSES = 12;
/** The time after which a file is ended that hangs, in milliseconds. A slow machine takes four minutes for the longest file, and ten for the guest. */
const FILE_TIMEOUT_MS = 900_000;
/** The guest runs in time that nobody else wants (SCHED_IDLE of sched(7)). By its own clock its work takes no longer for that (`vm/run.ts`). */
const AT_REST = ["chrt", "--idle", "0"] as const;
/** The endings of the tiers that need more than a machine with Node. */
const PRIVILEGED = /\.(netns|cluster|conformance|neutron|vm)\.test\.ts$/;
/**
 * The way in which a file runs, by a line `// KIND: reason` in it. `alone`: it measures time or memory or looks at the whole machine, and keeps the
 * processor busy; it runs by itself after the others. `quiet`: it measures time and uses little of the processor; it runs beside other such
 * files. `in turn`: it needs the processor now and then within seconds; it runs beside quiet files and one other such file. `own process`: it looks at its process, or replaces its timers, and shares it with no other file.
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

/** The files that each entry loads, by the entry's path. */
const shares = new Map<string, readonly string[]>();

/**
 * Distributes files over entries that load them, each entry a process. The start of a process and the modules that most files import cost
 * more than most files' tests.
 */
function entriesFor(files: readonly string[]): string[] {
  const folder = join(root, ".state/test-entries");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const parts = Array.from({ length: PROCESSES }, (_, at) => files.filter((_file, index) => index % PROCESSES === at));
  return parts
    .filter((share) => share.length > 0)
    .map((share, at) => {
      const entry = join(folder, `${at}.test.ts`);
      const suites = share.map(
        (file) =>
          `describe(${JSON.stringify(relative(root, file))}, async () => void (await import(${JSON.stringify(file)})));`,
      );
      writeFileSync(entry, ['import { describe } from "node:test";', ...suites, ""].join("\n"));
      shares.set(entry, share);
      return entry;
    });
}

/** The reason of a failed test on one line; for a file whose process failed, with its exit code and signal. */
function reasonOf(error: Error): string {
  const { cause = error } = error;
  const ends = cause as { readonly exitCode?: number | null; readonly signal?: string | null };
  const end = ends.exitCode === undefined ? "" : ` (exit code ${ends.exitCode}, signal ${ends.signal})`;
  const text = cause instanceof Error ? cause.message : String(cause);
  return `${text.replaceAll(/\s+/g, " ").slice(0, LONGEST_REASON)}${end}`;
}

/** One call of {@link runFiles}: results as they come. */
class FileRun {
  readonly #results: Results;
  readonly #files: ReadonlySet<string>;
  /** Files whose results are complete, by their path from the root. */
  readonly #finished = new Set<string>();
  /** The reason why a process failed, by its file or entry. */
  readonly #reasons = new Map<string, string>();
  /** Results of tests that are defined in a helper. They are those of the file that imports it, whose end comes next. */
  #pending: TestResult[] = [];

  constructor(files: readonly string[], results: Results) {
    this.#files = new Set(files);
    this.#results = results;
  }

  take(path: string | undefined, result: TestResult): void {
    if (path?.endsWith(".test.ts") === true && !shares.has(path))
      this.#results.outcomes.add(relative(root, path), [result]);
    else this.#pending.push(result);
  }

  /** `file`: its path from the root. */
  finish(file: string, durationMs: number): void {
    this.#results.files.set(file, durationMs);
    this.#results.outcomes.add(file, this.#pending);
    this.#pending = [];
    this.#finished.add(file);
  }

  /** Returns true if the failed test is a file or an entry itself: its process has failed. */
  processFailed(name: string, reason: string): boolean {
    if (!this.#files.has(name)) return false;
    this.#reasons.set(name, reason);
    return true;
  }

  /**
   * Adds the failures of processes that did not finish their files, and returns the files that have not run for that reason. Of the files that
   * share a process the first one that is not finished has failed. If all of them are finished it is not known which one it was: they run again,
   * and the failure stays.
   */
  end(): readonly string[] {
    const { outcomes, others } = this.#results;
    const unrun: string[] = [];
    for (const path of this.#files) {
      const text = this.#reasons.get(path);
      const share = shares.get(path) ?? [path];
      const [first, ...rest] = share.filter((file) => !this.#finished.has(relative(root, file)));
      if (first !== undefined) {
        const result = { kind: "failed", text: text ?? "its process ended before its tests" } as const;
        outcomes.add(relative(root, first), [...this.#pending, result]);
        unrun.push(...rest);
      } else if (text !== undefined && share.length > 1) {
        others.push(`a process of ${share.map((file) => relative(root, file)).join(", ")}: ${text}`);
      } else if (text !== undefined) {
        outcomes.add(relative(root, path), [{ kind: "failed", text }]);
      }
    }
    return unrun;
  }
}

/** Runs files; returns those that have not run because the process that they shared with others has failed. */
async function runFiles(files: readonly string[], concurrency: number, results: Results): Promise<readonly string[]> {
  if (files.length === 0) return [];
  const execArgv = ["without-async-hooks.mjs", "compile-cache.mjs", "processor-log.ts", "test-end.ts"].map(
    (name) => `--import=${join(import.meta.dirname, name)}`,
  );
  const stream = run({ files: [...files], concurrency, timeout: FILE_TIMEOUT_MS, execArgv });
  const fileRun = new FileRun(files, results);
  const isFileSuite = (event: { readonly nesting: number; readonly name: string }): boolean =>
    event.nesting === 0 && event.name.endsWith(".test.ts");
  stream.on("test:pass", (event) => {
    if (event.details.type === "suite") {
      if (isFileSuite(event)) fileRun.finish(event.name, event.details.duration_ms);
    } else if (event.skip === undefined && event.todo === undefined) {
      fileRun.take(event.file, { kind: "passed" });
    } else if (!isCI || ALLOWED_SKIP.test(String(event.skip))) {
      fileRun.take(event.file, { kind: "skipped" });
    } else {
      const text = `${event.name}: it was skipped for a reason that is neither a kernel nor a package: ${event.skip}`;
      fileRun.take(event.file, { kind: "failed", text });
    }
  });
  stream.on("test:summary", ({ file, duration_ms }) => {
    if (file === undefined) return;
    if (!shares.has(file)) fileRun.finish(relative(root, file), duration_ms);
  });
  stream.on("test:fail", (event) => {
    const { error, type, duration_ms } = event.details;
    const reason = reasonOf(error);
    if (event.nesting === 0 && fileRun.processFailed(event.name, reason)) return;
    // A suite fails with its tests; it has a failure of its own where its body or one of its hooks has one.
    const isOwn = type !== "suite" || (error as { readonly failureType?: string }).failureType !== "subtestsFailed";
    if (isOwn)
      fileRun.take(isFileSuite(event) ? join(root, event.name) : event.file, {
        kind: "failed",
        text: `${event.name}: ${reason}`,
      });
    if (type === "suite" && isFileSuite(event)) fileRun.finish(event.name, duration_ms);
  });
  // Not the reporter's own totals: those come once, last, for all tiers.
  for await (const text of stream.compose(new spec())) process.stdout.write(String(text).replace(TOTALS, ""));
  return fileRun.end();
}

/** Files of a tier by their kind. A file that replaces timers would keep those of another file's servers from being cleared, so it runs in a process of its own. */
function kindsOf(files: readonly string[]): Record<string, readonly string[]> {
  const kindOf = (file: string): string => {
    const text = readFileSync(file, "utf8");
    const kind = KIND.exec(text)?.[1] ?? "ordinary";
    if (kind === "ordinary" && /\bmock\.timers\.enable\(/.test(text))
      throw new Error(`${relative(root, file)} replaces timers: it needs the line "// own process: REASON"`);
    return kind;
  };
  return Object.fromEntries(Map.groupBy(files, kindOf));
}

/** The vm tier's own name among the files: results of the guest are not told apart by file, except those that failed. */
const GUEST = "the guest";

/**
 * The vm tier runs its files inside one guest; the guest's runner prints TAP-like totals that are added up here. A failed test is one of its file.
 */
async function runGuest(results: Results, files: readonly string[]): Promise<void> {
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
  const many = (kind: "passed" | "skipped", count: number): TestResult[] =>
    Array.from({ length: count }, () => ({ kind }));
  results.outcomes.add(GUEST, [...many("passed", total("pass")), ...many("skipped", total("skipped"))]);
  const failed = failuresOfGuest(output);
  for (const { file, text } of failed) results.outcomes.add(file, [{ kind: "failed", text }]);
  if (failed.length < total("fail")) results.others.push(`${GUEST}: ${total("fail") - failed.length} tests failed`);
  if (code !== 0 && total("fail") === 0) results.others.push(`${GUEST}: its test run ended with code ${code}`);
}

/** The test files that `--changed` selects, from the root. */
function changedTests(): ReadonlySet<string> {
  const git = (...words: readonly string[]): string =>
    execFileSync("git", words, { cwd: root, encoding: "utf8" }).trim();
  const branches = git("for-each-ref", "--format=%(refname:short)", "refs/remotes/origin/main");
  const base = branches === "" ? "HEAD" : git("merge-base", "HEAD", branches);
  const files = [git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard")]
    .join("\n")
    .split("\n");
  const sources = globSync("{src,test,tools}/**/*.{ts,cjs,mjs}", { cwd: root, exclude: ["**/node_modules/**"] });
  return testsOfChanges(
    files.filter((file) => file !== ""),
    new Map(sources.map((file) => [file, readFileSync(join(root, file), "utf8")])),
  );
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
const changed = process.argv.includes("--changed") ? changedTests() : undefined;
const results: Results = { outcomes: new Outcomes(), files: new Map(), others: [] };
const start = performance.now();
/** The folder in which API servers write what programs asked for. */
const accessLog = join(root, ".state/access-log");
rmSync(accessLog, { recursive: true, force: true });
rmSync(join(root, ".state/passed-only-alone.txt"), { force: true });
process.env["ISTHMUS_ACCESS_LOG"] = accessLog;

/** The folder in which test processes write how long they had a processor. */
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
  return filesOf(TIERS[name], name).filter((file) => changed?.has(relative(root, file)) !== false);
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
// Files of all tiers share the processors best when they are one queue.
const tiers = (["cluster", "neutron", "conformance", "netns"] as const).filter((name) => chosen(name).length > 0);
const kinds = kindsOf(tiers.flatMap(chosen));
const { ordinary = [], quiet = [], "in turn": inTurn = [], alone = [], "own process": own = [] } = kinds;
const isOfCloud = (file: string): boolean => file.endsWith(".neutron.test.ts");
const isOfCluster = (file: string): boolean => file.endsWith(".cluster.test.ts");
/** Those that start clusters and clouds take the longest, and wait most of it. None of them is the last, beside which the others would have ended. */
const LAST_LONG = 0.85;
const queued = interleaved([
  { files: ordinary.filter(isOfCloud), until: LAST_LONG / 2 },
  { files: ordinary.filter(isOfCluster), until: LAST_LONG },
  { files: [...ofUnit, ...own], until: LAST_LONG },
  { files: ordinary.filter((file) => !isOfCloud(file) && !isOfCluster(file)), until: 1 },
]);
const title = [...(ofUnit.length > 0 ? ["unit"] : []), ...tiers].join(", ");
const unrun: string[] = [];
const runKind = async (files: readonly string[], concurrency: number): Promise<void> => {
  unrun.push(...(await runFiles(files, concurrency, results)));
};
const guest = part("vm", chosen("vm"), () => runGuest(results, chosen("vm")));
await part(title, queued, () => runKind(queued, AT_ONCE));
await part("unit: files that run alone", unit["alone"] ?? [], () => runKind(unit["alone"] ?? [], 1));
await part(`${title}: files that measure time and are quiet, and those that run in turn`, [...quiet, ...inTurn], () =>
  Promise.all([runKind(quiet, QUIET_AT_ONCE), runKind(inTurn, IN_TURN_AT_ONCE)]),
);
await part(`${title}: files that run alone`, alone, () => runKind(alone, 1));
await guest;
await part("files that did not run because their process had failed", unrun, () => runFiles(unrun, 1, results));

/** Runs each failed file once more, by itself. Returns those that pass then, with the failures before. */
async function runFailedAlone(): Promise<ReadonlyMap<string, readonly string[]>> {
  const passed = new Map<string, readonly string[]>();
  const failed = results.outcomes.failed;
  if (failed.length > RERUN_FILES) {
    console.log(`== ${failed.length} files failed; above ${RERUN_FILES} none runs again alone`);
    return passed;
  }
  const first = new Map(failed.map((file) => [file, results.outcomes.forget(file)] as const));
  const paths = failed.map((file) => join(root, file));
  await part("files that failed, each once more alone", paths, async () => {
    const inGuest = paths.filter((file) => file.endsWith(".vm.test.ts"));
    if (inGuest.length > 0) await runGuest(results, inGuest);
    for (const path of paths) if (!inGuest.includes(path)) await runFiles([path], 1, results);
  });
  // The guest reports only the failures of a file.
  for (const [file, failures] of first)
    if (!file.endsWith(".vm.test.ts")) results.outcomes.restoreUnlessPassed(file, failures);
  const stillFailed = new Set(results.outcomes.failed);
  for (const [file, failures] of first) if (!stillFailed.has(file)) passed.set(file, failures);
  return passed;
}

const passedAlone = await runFailedAlone();
writeFileSync(
  join(root, ".state/passed-only-alone.txt"),
  Array.from(passedAlone, ([file, failures]) => `${file}: ${failures.join("; ")}\n`).join(""),
);
const flakyPage = join(root, "docs/flaky.md");
const listed = listedFiles(existsSync(flakyPage) ? readFileSync(flakyPage, "utf8") : "");
const { passed, skipped, failures } = results.outcomes.all;
const allFailures = [...failures, ...results.others, ...faultsOf([...passedAlone.keys()], { listed, isCI })];
let counted = passed;
// Only all tests together use every right.
if (asked.length === 0 && only === "" && changed === undefined) {
  const faults = rightsFaults(accessLog);
  if (faults.length === 0) counted += 1;
  allFailures.push(...faults.map((fault) => `the rights of the manifests: ${fault}`));
}
if (counted + allFailures.length === 0 && changed === undefined) allFailures.push("no test ran");
console.log("the slowest files:");
for (const [file, ms] of [...results.files].sort(([, one], [, other]) => other - one).slice(0, SLOWEST))
  console.log(`  ${(ms / 1000).toFixed(1).padStart(6)} s  ${file}`);
const used = processorSeconds();
console.log(
  `the files that used the most of ${Array.from(used.values())
    .reduce((sum, one) => sum + one, 0)
    .toFixed(0)} s of processor:`,
);
for (const [file, seconds] of [...used].sort(([, one], [, other]) => other - one).slice(0, SLOWEST))
  console.log(`  ${seconds.toFixed(1).padStart(6)} s  ${file}`);
for (const failure of allFailures) console.log(`failed: ${failure}`);
for (const [file, before] of passedAlone) console.log(`passed only alone: ${file}: ${before.join("; ")}`);
console.log(`all tiers: ${((performance.now() - start) / 1000).toFixed(1)} s`);
console.log(`${counted} passed, ${allFailures.length} failed, ${skipped} skipped`);
process.exitCode = allFailures.length === 0 ? 0 : 1;
