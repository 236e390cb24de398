/** The files and functions of the code that a page names in backticks, and what a file declares. Everything here is pure. */
import { dirname, join } from "node:path";

/** One numbered line of a walk through the code in ARCHITECTURE.md. */
export interface WalkStep {
  /** The name of the walk: the bold sentence above its lines. */
  readonly walk: string;
  /** The file of the step, from the root; `undefined` if the line does not begin with one. It may have a placeholder, as `src/programs/<program>.ts`. */
  readonly file: string | undefined;
  /** The functions, methods and classes to read first, in the parentheses of the line. */
  readonly names: readonly string[];
}

/** The folders of the tree. A word in backticks that begins with one is a path from the root. */
const FROM_ROOT = /^(?:src|test|tools|bench|deploy|docs|\.ci)\/[\w./-]*$/;
/** The layers of `src`. Pages name a module as `layer/name`, and its files below that. */
const MODULE = /^(?:base|kernel|kube|cloud|wire|features|lab|programs)\/[\w./-]+$/;
/** In ARCHITECTURE.md: a file whose folder is that of the path that its paragraph names first. */
const BESIDE = /^(?:[\w-]+\/)*[\w-]+(?:\.[\w-]+)*\.ts$/;
/** A part of a path that stands for many. */
const PLACEHOLDER = /<[^>]*>|\bNAME\b/;

/** The words in backticks; a code block does not count. */
function wordsOf(markdown: string): readonly string[] {
  const text = markdown.replaceAll(/^```[\s\S]*?^```/gm, "");
  return Array.from(text.matchAll(/`([^`\n]+)`/g), ([, code = ""]) => code.split(/\s+/)).flat();
}

/**
 * The paths that a page names in backticks, from the root: whole paths, modules such as `base/async`, and with `beside` also files such as
 * `grpc-frontend.ts`, which are beside the first path of their paragraph or list item. A path with a placeholder, such as `<kind>.ts`, is left
 * out.
 */
export function pathsOf(markdown: string, { beside }: { readonly beside: boolean }): readonly string[] {
  const paths: string[] = [];
  for (const paragraph of markdown.split(/\n\s*\n|\n(?=\d+\. |- |\|)/)) {
    let folder: string | undefined;
    for (const word of wordsOf(paragraph)) {
      const isWhole = FROM_ROOT.test(word.replaceAll(/<[^>]*>/g, "x"));
      if (isWhole) folder ??= dirname(word);
      if (PLACEHOLDER.test(word)) continue;
      if (isWhole) paths.push(word);
      else if (MODULE.test(word)) paths.push(`src/${word}`);
      else if (beside && folder !== undefined && BESIDE.test(word)) paths.push(join(folder, word));
    }
  }
  return paths;
}

/** The steps of the walks of ARCHITECTURE.md: the numbered lines of its section "… walks through the code", except those that name commands. */
export function walkStepsOf(markdown: string): readonly WalkStep[] {
  const section = /^## [^\n]*walks through the code\n(?<body>[\s\S]*?)(?=^## |$(?![\s\S]))/m.exec(markdown)?.groups;
  const steps: WalkStep[] = [];
  let walk = "";
  for (const line of (section?.["body"] ?? "").split("\n")) {
    walk = /^\*\*(.+?)\*\*/.exec(line)?.[1] ?? walk;
    const [, text] = /^\d+\. (.*)$/.exec(line) ?? [];
    if (text === undefined || text.startsWith("`node ")) continue;
    const [, word] = /^`([^`]+)`/.exec(text) ?? [];
    const last = /\(((?:`#?\w+`(?:, )?)+)\)\.?$/.exec(text)?.[1] ?? "";
    const file = word !== undefined && FROM_ROOT.test(word.replaceAll(/<[^>]*>/g, "x")) ? word : undefined;
    steps.push({ walk, file, names: Array.from(last.matchAll(/`([^`]+)`/g), ([, name = ""]) => name) });
  }
  return steps;
}

/** True if the code declares a function, class, constant, type or method of this name. A call is no declaration. */
export function declares(code: string, name: string): boolean {
  if (
    new RegExp(
      `^(?:export )?(?:async )?(?:abstract )?(?:function\\*?|class|const|interface|type) ${name}\\b`,
      "m",
    ).test(code)
  )
    return true;
  const heads = new RegExp(`^ +(?:(?:static|async|override|private|get|set) )*\\*?${name}(?:<[^>\\n]*>)?\\(`, "gm");
  return Array.from(code.matchAll(heads)).some((head) =>
    /^\s*[:{]/.test(afterParentheses(code, head.index + head[0].length)),
  );
}

/** The code behind the parenthesis that closes the one before `from`. */
function afterParentheses(code: string, from: number): string {
  let depth = 1;
  let at = from;
  for (; at < code.length && depth > 0; at += 1) {
    if (code[at] === "(") depth += 1;
    if (code[at] === ")") depth -= 1;
  }
  return code.slice(at);
}
