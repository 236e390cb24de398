/**
 * Fails on a reference that leads nowhere: a relative link of a page, and a `docs/….md#anchor` in a comment or a message of the code; and on a
 * page that `docs/README.md` does not link to; and on a path in backticks that does not exist, and in ARCHITECTURE.md on a step of a walk
 * through the code whose file does not declare the names of the step.
 *
 *     node tools/check-references.ts
 *
 * An anchor is the slug of a heading, or an `<a id="…">` of its own, as the pages under docs/spec have for their section numbers.
 */
import "./require-node.ts";
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { declares, pathsOf, walkStepsOf } from "./code-references.ts";

const PAGES = ["*.md", "docs/**/*.md", "deploy/**/*.md"];
const SOURCES = ["{src,test,tools,bench}/**/*.{ts,js,cjs,sh}", "deploy/**/*.{yaml,service,conf}", "run", ".ci/run"];
/** `docs/spec/tunnel.md#5.1, #5.2 and #6`: one file, and any number of its anchors. */
const CODE_REFERENCE =
  /\bdocs\/[\w./-]+?\.md(?<anchors>#[\w-]+(?:\.\w+)*(?:(?:, and|,| and| to)\s+(?:\*\s+|\/\/\s+)?#[\w-]+(?:\.\w+)*)*)?/g;
/** The page that leads to all others. */
const INDEX = "docs/README.md";
/** The page whose walks are followed. */
const ARCHITECTURE = "ARCHITECTURE.md";
/** Pages about the past: they name paths as they were then. */
const PAST = /^CHANGELOG\.md$|^docs\/decisions\//;
const LINK = /\]\((?<target>[^)\s]+)\)/g;

const root = join(import.meta.dirname, "..");

/** The anchor that a heading has on the web: lower case, spaces as dashes, other punctuation removed. */
function slugOf(heading: string): string {
  const text = heading.replaceAll(/<[^>]+>/g, "").replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1");
  return text
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(/\s/g, "-");
}

/** Pure: every anchor of a page. */
export function anchorsOf(markdown: string): ReadonlySet<string> {
  const text = markdown.replaceAll(/^```[\s\S]*?^```/gm, "");
  const anchors = new Set(Array.from(text.matchAll(/<a id="([^"]+)">/g), ([, id = ""]) => id));
  const seen = new Map<string, number>();
  for (const [, heading = ""] of text.matchAll(/^#{1,6} (.+)$/gm)) {
    const slug = slugOf(heading);
    const before = seen.get(slug) ?? 0;
    seen.set(slug, before + 1);
    anchors.add(before === 0 ? slug : `${slug}-${before}`);
  }
  return anchors;
}

/** Pure: the references of a page, from its own folder. Links to other sites, and links in code, do not count. */
export function linksOf(markdown: string): readonly string[] {
  const text = markdown.replaceAll(/^```[\s\S]*?^```/gm, "").replaceAll(/`[^`\n]*`/g, "");
  return Array.from(text.matchAll(LINK), (match) => match.groups?.["target"] ?? "").filter(
    (target) => !/^[a-z]+:/.test(target),
  );
}

/** Pure: the references of a source file, from the root. */
export function referencesOf(code: string): readonly string[] {
  return Array.from(code.matchAll(CODE_REFERENCE)).flatMap((match) => {
    const anchors = match.groups?.["anchors"] ?? "";
    const file = anchors === "" ? match[0] : match[0].slice(0, -anchors.length);
    return anchors === "" ? [file] : Array.from(anchors.matchAll(/#[\w-]+(?:\.\w+)*/g), ([anchor]) => file + anchor);
  });
}

const known = new Map<string, ReadonlySet<string>>();

/** The fault of a reference to `target`, a path from the root with or without an anchor; `undefined` when it resolves. */
function faultOf(target: string): string | undefined {
  const [path = "", anchor] = target.split("#");
  const file = join(root, path);
  if (!existsSync(file)) return `there is no ${path}`;
  if (anchor === undefined || !path.endsWith(".md")) return undefined;
  const anchors = known.get(path) ?? anchorsOf(readFileSync(file, "utf8"));
  known.set(path, anchors);
  return anchors.has(decodeURIComponent(anchor)) ? undefined : `${path} has no heading or anchor "${anchor}"`;
}

function main(): void {
  const faults: string[] = [];
  let count = 0;
  const check = (file: string, target: string): void => {
    count += 1;
    const fault = faultOf(target);
    if (fault !== undefined) faults.push(`${file}: ${fault}`);
  };
  const read = (file: string): string => readFileSync(join(root, file), "utf8");
  const files = (patterns: readonly string[]): string[] =>
    globSync([...patterns], { cwd: root, exclude: ["**/node_modules/**", "tools/check-references*"] });
  for (const file of files(PAGES)) {
    for (const link of linksOf(read(file))) {
      const own = link.startsWith("#") ? file + link : normalize(join(dirname(file), link));
      check(file, own);
    }
    for (const target of referencesOf(read(file))) check(file, target);
    if (!PAST.test(file)) for (const path of pathsOf(read(file), { beside: file === ARCHITECTURE })) check(file, path);
  }
  for (const { walk, file, names } of walkStepsOf(read(ARCHITECTURE))) {
    count += names.length;
    if (file === undefined) faults.push(`${ARCHITECTURE}: a step of "${walk}" does not begin with a file`);
    else if (existsSync(join(root, file)))
      for (const name of names)
        if (!declares(read(file), name)) faults.push(`${ARCHITECTURE}: ${file} declares no ${name} ("${walk}")`);
  }
  for (const file of files(SOURCES)) for (const target of referencesOf(read(file))) check(file, target);
  const index = new Set(linksOf(read(INDEX)).map((link) => normalize(join(dirname(INDEX), link))));
  for (const file of files(["docs/**/*.md"]))
    if (file !== INDEX && !index.has(file)) faults.push(`${INDEX}: no link to ${file}`);
  const distinct = new Set(faults);
  for (const fault of distinct) console.error(fault);
  console.log(`${count} references; ${distinct.size} faults`);
  if (faults.length > 0) process.exitCode = 1;
}

if (import.meta.main) main();
