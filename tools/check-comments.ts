/**
 * Fails on a doc comment that begins with a word that stands for a missing noun or verb, such as "What the caller needs": a manual page would begin with "The
 * collaborators of the caller". The words are those that readers from outside could not follow without the code beside the comment.
 *
 *     node tools/check-comments.ts
 */
import "./require-node.ts";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The first words of comments without a subject. */
const HEADLESS = /^(?:What|Who|Whose|Where|Whether|How|Why|Of|By|Since)\b/;
const COMMENT = /\/\*\*(?<text>[\s\S]*?)\*\//g;

/** A doc comment without a subject. */
export interface HeadlessComment {
  /** The line of its first character, from 1. */
  readonly line: number;
  /** Its first words. */
  readonly words: string;
}

/** The doc comments of a file that begin without a subject. Pure. */
export function headlessComments(code: string): readonly HeadlessComment[] {
  return Array.from(code.matchAll(COMMENT)).flatMap((match) => {
    const text = (match.groups?.["text"] ?? "").replaceAll(/^\s*\*? ?/gm, "").trim();
    if (!HEADLESS.test(text)) return [];
    const line = code.slice(0, match.index).split("\n").length;
    return [{ line, words: text.split(/\s+/).slice(0, 8).join(" ") }];
  });
}

function main(): void {
  const root = join(import.meta.dirname, "..");
  const files = globSync("{src,test,tools,bench}/**/*.{ts,mjs,cjs,cts}", { cwd: root, exclude: ["**/node_modules/**"] })
    .filter((file) => !file.includes(".gen."))
    .sort();
  const faults = files.flatMap((file) =>
    headlessComments(readFileSync(join(root, file), "utf8")).map(
      ({ line, words }) => `${file}:${line}: a doc comment begins with "${words}": begin with a noun or a verb`,
    ),
  );
  for (const fault of faults) console.error(fault);
  process.exitCode = faults.length === 0 ? 0 : 1;
}

if (process.argv[1] === import.meta.filename) main();
