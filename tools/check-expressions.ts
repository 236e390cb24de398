/**
 * Fails on a regular expression of the sources whose work can grow faster than the text that it reads: one text of a stranger would hold up the
 * thread that serves everybody. `recheck` judges each expression. Its verdicts are in `tools/expressions.json`, since judging all of them takes
 * the processor for much longer than all other checks; a changed expression is another one, and needs a verdict of its own.
 *
 *     node tools/check-expressions.ts            check: each expression has a verdict, and is linear or bounded
 *     node tools/check-expressions.ts --write    judge those without a verdict, and forget those that are gone
 *     node tools/check-expressions.ts --all      judge all again, and compare
 */
import { execFileSync } from "node:child_process";
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { type Bound, expressionsOf, isBounded, madeExpressions } from "./expressions.ts";

/** The most characters that an expression may read which is not linear. */
const MAX_BOUND = 4096;
/** The time of one verdict, in milliseconds. */
const JUDGE_MS = 20_000;

/** An expression that is not linear, and what bounds the texts that it reads. */
interface BoundedExpression extends Bound {
  readonly file: string;
  /** As in `tools/expressions.json`. */
  readonly expression: string;
}

const BOUNDED: readonly BoundedExpression[] = [
  {
    file: "src/features/nic-controller/run/claim-draft.ts",
    expression: "/[^A-Za-z0-9]+$/",
    bound: "MAX_LABEL_LENGTH",
    by: "value.slice(0, MAX_LABEL_LENGTH)",
  },
  {
    file: "src/kube/events/recorder.ts",
    expression: "/\\uFFFD+$/",
    bound: "MAX_NOTE_BYTES",
    by: "bytes.subarray(0, MAX_NOTE_BYTES)",
  },
];

/** Expressions that `recheck` cannot judge in its time, and why they are linear. */
const BY_HAND: Readonly<Record<string, string>> = {
  '/^type (\\S+) hook (\\S+)(?: device "([^"]*)")? priority (.+)$/':
    "each part ends at a character that it cannot have, and it begins at the start alone",
};

/**
 * Expressions that are made of a text, by file: how many, and as literals what they are. A schema's patterns are those of the CRDs, which are
 * looked at too.
 */
const MADE: Readonly<Record<string, { readonly count: number; readonly expressions: readonly string[] }>> = {
  "src/features/nic-controller/plan/identity.ts": {
    count: 1,
    expressions: ["/^nic-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(.{1,15})$/"],
  },
  "src/features/sni-router/routes.ts": {
    count: 1,
    expressions: ["/^(\\*\\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$/"],
  },
  "src/kernel/nft/parse.ts": {
    count: 2,
    expressions: [
      "/^(?<op>add|create|insert|delete|flush) (?<kind>table|chain|rule|set|map|element) (?<family>ip|ip6|inet|arp|bridge|netdev) (?<table>[a-zA-Z_][a-zA-Z0-9/_.-]*)(?: (?<rest>.*))?$/",
      "/^([a-zA-Z_][a-zA-Z0-9/_.-]*)(?: (.*))?$/",
    ],
  },
  "src/kernel/nft/fake-state.ts": {
    count: 1,
    expressions: ["/\\b(jump|goto) name(?![\\w/.-])/", "/@name(?![\\w/.-])/"],
  },
  "src/kube/coil/structure.ts": { count: 1, expressions: [] },
};

const root = join(import.meta.dirname, "..");
const VERDICTS = "tools/expressions.json";
const faults: string[] = [];

/** The sources that run in a cluster. The lab's API server is for labs and tests alone. */
const files = globSync("src/**/*.ts", { cwd: root })
  .filter((file) => !/\.test\.ts$|\/testing\/|\/testing\.ts$|^src\/lab\//.test(file))
  .sort();
/** Each expression, and where it is. */
const places = new Map<string, string[]>();

function add(expression: string, place: string): void {
  places.set(expression, [...(places.get(expression) ?? []), place]);
}

for (const file of files) {
  const code = readFileSync(join(root, file), "utf8");
  for (const { source, flags, line } of expressionsOf(code)) add(`/${source}/${flags}`, `${file}:${line}`);
  const made = madeExpressions(code);
  const known = MADE[file];
  if (made !== (known?.count ?? 0))
    faults.push(
      `${file}: makes ${made} expressions of texts, and tools/check-expressions.ts knows ${known?.count ?? 0}`,
    );
  for (const expression of known?.expressions ?? []) add(expression, file);
}
for (const file of globSync("deploy/chart/crds/*.yaml", { cwd: root }).sort())
  for (const [, pattern = ""] of readFileSync(join(root, file), "utf8").matchAll(/^ *pattern: (.*)$/gm))
    add(`/${pattern.replaceAll("/", "\\/")}/`, file);

const isWrite = process.argv.includes("--write");
const isAll = process.argv.includes("--all");
const stored = JSON.parse(readFileSync(join(root, VERDICTS), "utf8")) as Record<string, string>;
const verdicts: Record<string, string> = {};
for (const [expression, at] of [...places].sort(([one], [other]) => (one < other ? -1 : 1))) {
  const known = Object.hasOwn(stored, expression) ? stored[expression] : undefined;
  const verdict = isAll || (known === undefined && isWrite) ? await judge(expression) : known;
  if (isAll && verdict !== known) faults.push(`${at.join(", ")}: ${expression} is ${verdict}; the file says ${known}`);
  if (verdict === undefined)
    faults.push(`${at.join(", ")}: ${expression} has no verdict: node tools/check-expressions.ts --write`);
  else {
    verdicts[expression] = verdict;
    const isByHand = verdict.startsWith("unknown") && Object.hasOwn(BY_HAND, expression);
    if (verdict !== "linear" && !isByHand) checkBound(expression, verdict, at);
  }
}
for (const expression of Object.keys(BY_HAND))
  if (verdicts[expression]?.startsWith("unknown") !== true)
    faults.push(`${expression} is not there, or was judged, and needs no reason in tools/check-expressions.ts`);
for (const { file, expression } of BOUNDED)
  if (verdicts[expression] === "linear" || !places.get(expression)?.some((place) => place.startsWith(`${file}:`)))
    faults.push(`${file}: ${expression} is not there, or linear, and needs no bound in tools/check-expressions.ts`);

const text = `${JSON.stringify(verdicts, null, 1)}\n`;
if (isWrite) writeFileSync(join(root, VERDICTS), text);
else if (faults.length === 0 && text !== `${JSON.stringify(stored, null, 1)}\n`)
  faults.push(`${VERDICTS}: has expressions that are gone: node tools/check-expressions.ts --write`);
for (const fault of faults) process.stderr.write(`${fault}\n`);
process.exitCode = faults.length === 0 ? 0 : 1;

/** Each place of an expression that is not linear has a bound of its own. */
function checkBound(expression: string, verdict: string, at: readonly string[]): void {
  for (const place of at) {
    const [file = ""] = place.split(":");
    const bounded = BOUNDED.find((one) => one.file === file && one.expression === expression);
    if (bounded === undefined) {
      faults.push(`${place}: ${expression} is ${verdict}: write a linear one, or bound what it reads`);
      continue;
    }
    if (!isBounded(readFileSync(join(root, file), "utf8"), bounded, MAX_BOUND))
      faults.push(
        `${place}: no ${bounded.bound} of at most ${MAX_BOUND}, or no ${bounded.by}, bounds what ${expression} reads`,
      );
  }
}

/** The part of `recheck` that is used here. */
interface Judge {
  readonly check: (
    source: string,
    flags: string,
    options: { readonly timeout: number },
  ) => Promise<
    | { readonly status: "safe" }
    | { readonly status: "unknown"; readonly error: { readonly kind: string } }
    | { readonly status: "vulnerable"; readonly complexity: { readonly type: string; readonly degree?: number } }
  >;
}

/** Installed where it is needed, by its lock file, without its executables: a checkout that is only built or tested needs none of it. */
function judgeOf(): Judge {
  const folder = join(root, "tools/recheck");
  if (!existsSync(join(folder, "node_modules/recheck"))) {
    const npm = join(root, "tools/runtime/node_modules/npm/bin/npm-cli.js");
    execFileSync(process.execPath, [npm, "ci", "--omit=optional", "--ignore-scripts"], {
      cwd: folder,
      stdio: "inherit",
    });
  }
  // The implementation in JavaScript: the others are executables.
  process.env["RECHECK_BACKEND"] = "pure";
  return createRequire(join(folder, "package.json"))("recheck") as Judge;
}

/** `linear`, `polynomial` with its degree, `exponential`, or `unknown` when the time was over. */
async function judge(expression: string): Promise<string> {
  const { check } = judgeOf();
  const end = expression.lastIndexOf("/");
  const found = await check(expression.slice(1, end), expression.slice(end + 1), { timeout: JUDGE_MS });
  if (found.status === "safe") return "linear";
  if (found.status === "unknown") return `unknown: ${found.error.kind}`;
  const { complexity } = found;
  return complexity.degree === undefined ? complexity.type : `${complexity.type} ${complexity.degree}`;
}
