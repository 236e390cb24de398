/**
 * The tests that a change can break. A test depends on what it imports, directly or through others, and on the files that it names.
 *
 * - A module of `src` is one node; each of its test files is a node of its own, which depends on the module. Each file of `test` and `tools` is
 *   a node.
 * - A test, and a file of `test` or `tools`, names another file of these two by its name in a string, because it runs it (`"test.ts"`); and any
 *   file that is no code by its path, its name or a folder that it is in (`"deploy"`), because it reads it. Programs name pages in their
 *   messages and do not read them, so names in other files of `src` do not count.
 * - A change of what every test runs on, such as the lock file, selects all tests.
 */
import { basename, dirname, join } from "node:path";
import { type Import, importsIn, moduleOf, targetOf, withoutComments } from "./modules.ts";

/** The packages and the Node that tests run with, and the files that run them: `test.ts` and what it loads into each process of tests. */
const FOUNDATION =
  /^(?:package(?:-lock)?\.json|tools\/(?:runtime\/package(?:-lock)?\.json|(?:test|processor-log|test-end)\.ts|(?:compile-cache|without-async-hooks)\.mjs|plain-assert\.cjs))$/;
const TEST = /\.test\.ts$/;
const CODE = /\.(?:ts|cjs|mjs)$/;
/** Files that can name others. */
const NAMES_OTHERS = /^(?:test|tools)\/|\.test\.ts$/;

/** The node of a file: the file itself, or its module. */
function nodeOf(file: string): string {
  return file.startsWith("src/") && !TEST.test(file) ? moduleOf(file) : file;
}

/** The node that an import means; `undefined` for packages. */
function importedNode(one: Import): string | undefined {
  const target = targetOf(one);
  if (target === undefined) return undefined;
  if (target.startsWith("test/") && !CODE.test(target)) return `test/support/${target.slice("test/".length)}.ts`;
  return nodeOf(target);
}

/** The strings of the code that could be paths. */
function stringsOf(code: string): ReadonlySet<string> {
  return new Set(Array.from(withoutComments(code).matchAll(/(["'`])([^"'`\s]+)\1/g), ([, , text = ""]) => text));
}

/** True if the string is this file: a path from the folder of `from` (`"../x.ts"`), or the last parts of the path (`"test.ts"`, `"tools/test.ts"`). */
function isPathOf(text: string, file: string, from: string): boolean {
  return text.startsWith(".") ? join(dirname(from), text) === file : file === text || file.endsWith(`/${text}`);
}

/** True if a string is a file that is no code, or a folder that it is in, with or without a pattern or a placeholder behind it. */
function namesData(strings: ReadonlySet<string>, file: string, from: string): boolean {
  // A word of one part without an extension, such as "run", is seldom a file of the root.
  const isWord = !/[./]/.test(file);
  const folders: string[] = [];
  for (let folder = dirname(file); folder !== "."; folder = dirname(folder)) folders.push(folder);
  for (const text of strings) {
    if (isWord ? text.startsWith(".") && basename(text) === file : isPathOf(text, file, from)) return true;
    const start = text.replace(/\/?(?:[*{$].*)?$/, "");
    if (start !== "" && folders.some((folder) => start === folder || isPathOf(start, folder, from))) return true;
  }
  return false;
}

/** For each node the nodes that depend on it. */
function usersOf(sources: ReadonlyMap<string, string>): ReadonlyMap<string, ReadonlySet<string>> {
  const users = new Map<string, Set<string>>();
  const add = (node: string, user: string): void => void users.set(node, (users.get(node) ?? new Set()).add(user));
  const others = new Map<string, string[]>();
  for (const file of sources.keys())
    if (!file.startsWith("src/")) others.set(basename(file), [...(others.get(basename(file)) ?? []), file]);
  for (const [file, code] of sources) {
    if (file.startsWith("src/") && TEST.test(file)) add(moduleOf(file), file);
    for (const one of importsIn(file, code)) {
      const target = importedNode(one);
      if (target !== undefined) add(target, nodeOf(file));
    }
    if (!NAMES_OTHERS.test(file)) continue;
    for (const text of stringsOf(code))
      for (const named of others.get(basename(text)) ?? []) if (isPathOf(text, named, file)) add(named, file);
  }
  return users;
}

/**
 * Pure: the test files, from the root, that depend on a changed file.
 *
 * @param changed paths from the root; the files may be gone
 * @param sources the code of every file of `src`, `test` and `tools`, by its path from the root
 */
export function testsOfChanges(changed: readonly string[], sources: ReadonlyMap<string, string>): ReadonlySet<string> {
  const tests = Array.from(sources.keys()).filter((file) => TEST.test(file));
  if (changed.some((file) => FOUNDATION.test(file))) return new Set(tests);
  const found = new Set(changed.map(nodeOf));
  const data = changed.filter((file) => !CODE.test(file));
  if (data.length > 0)
    for (const [file, code] of sources) {
      if (!NAMES_OTHERS.test(file)) continue;
      const strings = stringsOf(code);
      if (data.some((one) => namesData(strings, one, file))) found.add(file);
    }
  const users = usersOf(sources);
  for (const node of found) for (const user of users.get(node) ?? []) found.add(user);
  return new Set(tests.filter((file) => found.has(file)));
}
