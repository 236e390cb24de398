/**
 * The modules of the tree and what they import, according to their files. A module is `layer/folder`; a program, or a folder of programs,
 * is one.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

export interface Import {
  /** The importing file, from the root. */
  readonly file: string;
  /** The specifier in the source: `#base/ip`, `./x.ts`, `node:fs`. */
  readonly specifier: string;
}

/** Pure: `src/base/ip/cidr.ts` is of `base/ip`, `src/programs/lab.ts` and `src/programs/lab/x.ts` of `programs/lab`. */
export function moduleOf(file: string): string {
  const [, layer = "", name = ""] = file.split("/");
  return `${layer}/${name.replace(/\.ts$/, "")}`;
}

/** The file or module that an import means: a path from the root, `layer/name`, or `undefined` for packages. */
export function targetOf({ file, specifier }: Import): string | undefined {
  if (specifier.startsWith(".")) return normalize(join(dirname(file), specifier));
  return /^#(\w+\/[\w-]+)$/.exec(specifier)?.[1];
}

/** Every import of the sources, those of tests too. */
export function importsOf(root: string): readonly Import[] {
  return globSync("src/**/*.ts", { cwd: root }).flatMap((file) => {
    const code = readFileSync(join(root, file), "utf8").replaceAll(/^\s*(\/\*\*|\*|\/\/).*$/gm, "");
    return Array.from(code.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*"([^"]+)"/g), ([, specifier = ""]) => ({
      file,
      specifier,
    }));
  });
}

/** Pure: these modules, and all that import them, directly or through others. */
export function dependentsOf(modules: Iterable<string>, imports: readonly Import[]): ReadonlySet<string> {
  const users = new Map<string, Set<string>>();
  for (const one of imports) {
    const target = targetOf(one);
    if (target === undefined) continue;
    const to = target.startsWith("src/") ? moduleOf(target) : target;
    users.set(to, (users.get(to) ?? new Set()).add(moduleOf(one.file)));
  }
  const found = new Set(modules);
  for (const module of found) for (const user of users.get(module) ?? []) found.add(user);
  return found;
}
