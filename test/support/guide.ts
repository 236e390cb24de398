/**
 * The commands of the pages for operators, as they stand there. A command is a block that is indented by four columns more than its list item, after an
 * empty line.
 */
import assert from "node:assert/strict";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import { ISTHMUS, start } from "#test/lab";

const ROOT = join(import.meta.dirname, "../..");
const DOCS = join(ROOT, "docs");
const PAGES = "{guides,tutorial}/*.md";

/** The part of a page before its first heading of the second level. */
export const TOP = "(top)";

/** The blocks of commands of each section of a page, by the section's heading. */
export function sectionsOf(page: string): ReadonlyMap<string, readonly string[]> {
  const [file] = globSync(`{guides,tutorial}/${page}`, { cwd: DOCS });
  if (file === undefined) throw new Error(`there is no page ${page}`);
  const sections = new Map<string, string[][]>();
  let section = TOP;
  let before = "";
  let [isInside, isFenced] = [false, false];
  for (const line of readFileSync(join(DOCS, file), "utf8").split("\n")) {
    if (line.startsWith("```")) isFenced = !isFenced;
    if (!isFenced && line.startsWith("## ")) section = line.slice(3);
    const isCode: boolean = !isFenced && line.startsWith("    ") && (isInside || before === "");
    const blocks = sections.get(section) ?? [];
    if (isCode && !isInside) blocks.push([]);
    if (isCode) blocks.at(-1)?.push(line);
    if (blocks.length > 0) sections.set(section, blocks);
    isInside = isCode;
    before = line;
  }
  return new Map([...sections].map(([name, blocks]) => [name, blocks.map(dedent)]));
}

/** The blocks of one section. */
export function commandsOf(page: string, section: string): readonly string[] {
  return sectionsOf(page).get(section) ?? [];
}

/** How commands of a page are run. */
export interface FollowOptions {
  /** Words in place of those of the page: names and addresses of a bed. */
  readonly words?: Readonly<Record<string, string>>;
  /** The kubeconfig, if it is there. */
  readonly kubeconfig?: string;
  /** A command that runs another one, such as in the network namespace of a node. */
  readonly wrap?: readonly string[];
  /** The folder in which they run. Default: the checkout. */
  readonly folder?: string;
}

/** Runs commands of a page as one shell that ends at the first failure, with our programs and kubectl at hand; what they have printed. */
export async function follow(scripts: readonly string[], options: FollowOptions = {}): Promise<string> {
  const { words = {}, kubeconfig = "", wrap = [], folder = ROOT } = options;
  assert.ok(scripts.length > 0 && scripts.every((one) => one !== ""), "the page has these commands");
  let script = scripts.join("\n");
  for (const [word, value] of Object.entries(words)) script = script.replaceAll(word, value);
  const own = mkdtempSync(join(tmpdir(), "isthmus-page-"));
  try {
    // A file: a command of a page looks for processes by words that the page itself has.
    const file = join(own, "script");
    writeFileSync(file, `cd ${folder}\n${existsSync(kubeconfig) ? `export KUBECONFIG=${kubeconfig}\n` : ""}${script}`);
    const path = [dirname(ISTHMUS), join(ROOT, ".state/debian/usr/bin"), process.env["PATH"]].join(delimiter);
    const argv = [...wrap, "sh", "-e", file];
    const { code, stdout, stderr } = await start(argv, { env: { PATH: path, HOME: own }, timeoutMs: 200_000 }).ended;
    assert.equal(code, 0, `${script}\n${stdout}${stderr}`);
    return stdout;
  } finally {
    rmSync(own, { recursive: true });
  }
}

/** The names of all pages. */
export function pagesOfOperators(): readonly string[] {
  return globSync(PAGES, { cwd: DOCS })
    .map((file) => basename(file))
    .sort();
}

function dedent(block: readonly string[]): string {
  const indent = Math.min(...block.map((line) => line.length - line.trimStart().length));
  return block.map((line) => line.slice(indent)).join("\n");
}
