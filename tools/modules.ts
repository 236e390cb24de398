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

/** Pure: `src/base/ip/cidr.ts` is of `base/ip`, `src/programs/tools/lab/x.ts` of `programs/tools/lab`, `src/programs/start/x.ts` of `programs/start`. */
export function moduleOf(file: string): string {
  const [, layer = "", ...parts] = file.replace(/\.ts$/, "").split("/");
  const folders = layer === "programs" ? Math.max(1, Math.min(2, parts.length - 1)) : 1;
  return [layer, ...parts.slice(0, folders)].join("/");
}

/** The file or module that an import means: a path from the root, `layer/name`, or `undefined` for packages. Only tests import a file of programs by its `#` name. */
export function targetOf({ file, specifier }: Import): string | undefined {
  if (specifier.startsWith(".")) return normalize(join(dirname(file), specifier));
  const name = /^#(\w+\/[\w/-]+)$/.exec(specifier)?.[1];
  return name?.startsWith("programs/") === true ? `src/${name}.ts` : name;
}

/** Pure: code without the lines that are comments. */
export function withoutComments(code: string): string {
  return code.replaceAll(/^\s*(\/\*\*|\*|\/\/).*$/gm, "");
}

/** Pure: the imports of a file with this code. */
export function importsIn(file: string, code: string): readonly Import[] {
  const imports = withoutComments(code).matchAll(/(?:\bfrom|\bimport)\s*\(?\s*"([^"]+)"/g);
  return Array.from(imports, ([, specifier = ""]) => ({ file, specifier }));
}

/** Every import of the sources, those of tests too. */
export function importsOf(root: string): readonly Import[] {
  return globSync("src/**/*.ts", { cwd: root }).flatMap((file) =>
    importsIn(file, readFileSync(join(root, file), "utf8")),
  );
}
