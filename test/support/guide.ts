/**
 * The commands of the pages for operators, as they stand there. A command is a block that is indented by four columns more than its list item, after an
 * empty line.
 */
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";

const DOCS = join(import.meta.dirname, "../../docs");
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
