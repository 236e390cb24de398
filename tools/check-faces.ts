/**
 * Fails on a name that a module's face (`index.ts`) exports and nobody imports from it: a face exports only the names that its users need.
 *
 *     node tools/check-faces.ts
 */
import "./require-node.ts";
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

/** Faces of modules that are built before the programs that will use them. */
const WAITING = new Set(["src/kube/webhook/index.ts", "src/kube/nic/index.ts", "src/features/nic/index.ts"]);

const root = join(import.meta.dirname, "..");

/** `import { a, type B as C } from "x"`, `export { a } from "x"`, `export * from "x"`, `import * as ns from "x"`, `import("x")`. */
const NAMED = /\b(?:import|export)\s+(?:type\s+)?\{(?<names>[^}]*)\}\s*from\s*"(?<from>[^"]+)"/g;
const WHOLE = /(?:\*(?:\s+as\s+\w+)?\s+from\s*|\bimport\s*\(\s*|^import\s+)"(?<from>[^"]+)"/gm;

/** Pure: code without its comments. */
function stripped(code: string): string {
  return code.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/^\s*\/\/.*$/gm, "");
}

/** Pure: the two names of each entry in the braces of an import or export: in the other module, and here. */
function entriesOf(braces: string): readonly { readonly there: string; readonly here: string }[] {
  return braces
    .split(",")
    .map((entry) => entry.trim().replace(/^type\s+/, ""))
    .filter((entry) => entry !== "")
    .map((entry) => {
      const [there = "", here = there] = entry.split(/\s+as\s+/);
      return { there, here };
    });
}

/** Pure: the names that a face exports from other files of its module. */
export function exportsOf(code: string): readonly string[] {
  const text = stripped(code);
  const lists = Array.from(text.matchAll(/\bexport\s+(?:type\s+)?\{(?<names>[^}]*)\}/g), (match) =>
    entriesOf(match.groups?.["names"] ?? "").map(({ here }) => here),
  );
  return lists.flat();
}

/** Pure: the names that the code of a file imports from each module; `*` for all names. */
export function usesOf(code: string): readonly { readonly from: string; readonly names: readonly string[] }[] {
  const text = stripped(code);
  const uses: { from: string; names: readonly string[] }[] = [];
  for (const { groups } of text.matchAll(NAMED))
    uses.push({ from: groups?.["from"] ?? "", names: entriesOf(groups?.["names"] ?? "").map(({ there }) => there) });
  for (const { groups } of text.matchAll(WHOLE)) uses.push({ from: groups?.["from"] ?? "", names: ["*"] });
  return uses;
}

/** The file of a specifier, from the root; `undefined` for packages and built-in modules. */
function resolved(file: string, specifier: string): string | undefined {
  if (specifier.startsWith(".")) return normalize(join(dirname(file), specifier));
  const match = /^#(\w+)\/([\w-]+)$/.exec(specifier);
  if (match === null) return undefined;
  const [, layer = "", name = ""] = match;
  if (layer === "test") return `test/support/${name}.ts`;
  const [folder, single] = [`src/${layer}/${name}/index.ts`, `src/${layer}/${name}.ts`];
  return existsSync(join(root, folder)) ? folder : single;
}

function main(): void {
  const used = new Map<string, Set<string>>();
  for (const file of globSync("{src,test,tools,bench}/**/*.ts", { cwd: root, exclude: ["**/node_modules/**"] })) {
    for (const { from, names } of usesOf(readFileSync(join(root, file), "utf8"))) {
      const target = resolved(file, from);
      if (target === undefined) continue;
      const known = used.get(target) ?? new Set();
      used.set(target, known);
      for (const name of names) known.add(name);
    }
  }
  let count = 0;
  for (const face of globSync("src/**/index.ts", { cwd: root }).sort()) {
    const users = used.get(face) ?? new Set();
    if (users.has("*") || WAITING.has(face)) continue;
    const idle = exportsOf(readFileSync(join(root, face), "utf8")).filter((name) => !users.has(name));
    if (idle.length > 0) console.error(`${face}: nobody imports ${idle.join(", ")}`);
    count += idle.length;
  }
  if (count > 0) process.exitCode = 1;
}

if (import.meta.main) main();
