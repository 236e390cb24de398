/**
 * Fails on an upward, sideways or cyclic import, between modules and between the files of one, and on an import past a module's face;
 * prints the graph that ARCHITECTURE.md shows. Of `programs`, each wing has folders: one of `shared` has an `index.ts`, which programs import;
 * one of another wing is the program of its name, begins with its `program.ts`, and no other program imports its files. `start` has files alone.
 *
 *     node tools/check-layers.ts            check, also that ARCHITECTURE.md shows the graph as it is
 *     node tools/check-layers.ts --write    put the graph into ARCHITECTURE.md
 */
import { existsSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { importsOf, moduleOf as pathOf, targetOf } from "./modules.ts";

/** The layers that each layer may import besides itself. */
const BELOW: Readonly<Record<string, readonly string[]>> = {
  base: [],
  kernel: ["base"],
  kube: ["base"],
  cloud: ["base"],
  wire: ["base"],
  features: ["base", "kernel", "kube", "cloud", "wire"],
  lab: ["base", "kernel", "kube", "cloud", "wire", "features"],
  programs: ["base", "kernel", "kube", "cloud", "wire", "features", "lab"],
};
/** Layers whose modules must not import each other. */
const NO_SIBLINGS = new Set(["features"]);
const MARKS = ["<!-- layers: begin -->", "<!-- layers: end -->"] as const;

/** The files that import programs: the list of them. */
const STARTERS = new Set(["src/programs/programs.ts"]);

const root = join(import.meta.dirname, "..");
const faults: string[] = [];
/** Module to the modules that it imports; a module is `layer/folder`. */
const edges = new Map<string, Set<string>>();
/** File to the files of its own module that it imports, types too. */
const files = new Map<string, Set<string>>();

/** Programs are one module in the graph. */
function moduleOf(file: string): string {
  return file.startsWith("src/programs/") ? "programs" : pathOf(file);
}

function checkImport(file: string, target: string): void {
  const from = moduleOf(file);
  if (target.startsWith(".")) {
    const path = targetOf({ file, specifier: target }) ?? "";
    const to = moduleOf(path);
    if (to !== from) faults.push(`${file}: relative import ${target} leaves the module; use #${to}`);
    else if (to === "programs") checkProgramImport(file, path);
    files.set(file, (files.get(file) ?? new Set()).add(path));
    return;
  }
  const match = /^#(\w+)\/([\w-]+)$/.exec(target);
  if (match === null) {
    if (target.startsWith("#")) faults.push(`${file}: ${target} is inside another module; import its index.ts`);
    if (target === "koffi" && from !== "kernel/ffi") faults.push(`${file}: only kernel/ffi may import koffi`);
    return;
  }
  const [, layer = "", folder = ""] = match;
  const own = from.split("/")[0] ?? "";
  const isTest = file.endsWith(".test.ts") || file.endsWith(".contract.ts");
  if (layer === "test") {
    if (!isTest) faults.push(`${file}: only tests may import ${target}`);
    return;
  }
  const to = layer === "programs" ? "programs" : `${layer}/${folder}`;
  if (to === from) {
    faults.push(`${file}: imports its own module by ${target}; use a relative import`);
    return;
  }
  // A test may use the lab's API server and other layers for its test environment.
  if (isTest) return;
  if (layer !== own && !(BELOW[own] ?? []).includes(layer)) faults.push(`${file}: ${own} may not import ${target}`);
  if (layer === own && NO_SIBLINGS.has(own))
    faults.push(`${file}: siblings in ${own} may not import each other (${target})`);
  edges.set(from, (edges.get(from) ?? new Set()).add(to));
}

/** Between files of `programs`: a program's folder is its own, and a shared folder is imported by its face. */
function checkProgramImport(file: string, target: string): void {
  const [own, other] = [pathOf(file), pathOf(target)];
  if (own === other || file.endsWith(".test.ts")) return;
  if (other.startsWith("programs/shared/")) {
    if (target !== `src/${other}/index.ts`) faults.push(`${file}: ${target} is inside ${other}; import its index.ts`);
  } else if (isProgramFolder(other) && !STARTERS.has(file)) {
    faults.push(`${file}: ${target} belongs to another program; move shared code into a folder of src/programs/shared`);
  }
}

/** True for `programs/<wing>/<program>`. */
function isProgramFolder(module: string): boolean {
  return module.split("/").length === 3 && !module.startsWith("programs/shared/");
}

/** The form of `programs`: `program.ts` in each folder of a wing, `index.ts` in each shared one, and a program in no other file. */
function checkProgramFolders(): void {
  for (const folder of globSync("src/programs/*/*/", { cwd: root })) {
    const face = isProgramFolder(folder.replace(/^src\//, "").replace(/\/$/, "")) ? "program.ts" : "index.ts";
    if (!existsSync(join(root, folder, face))) faults.push(`${folder}: there is no ${face}`);
  }
  const exclude = ["**/*.test.ts", "**/shared/{program,daemon-kit}/**"];
  for (const file of globSync("src/programs/**/*.ts", { cwd: root, exclude }))
    if (
      /\bdefine(?:Program|Daemon)\(/.test(readFileSync(join(root, file), "utf8")) &&
      !/^src\/programs\/\w+\/[\w-]+\/program\.ts$/.test(file)
    )
      faults.push(`${file}: a program is src/programs/<wing>/<program>/program.ts`);
}

/** A cycle through a graph, as a path, if there is one. */
function findCycle(edges: ReadonlyMap<string, ReadonlySet<string>>): readonly string[] | undefined {
  const done = new Set<string>();
  const visit = (at: string, path: readonly string[]): readonly string[] | undefined => {
    if (path.includes(at)) return [...path.slice(path.indexOf(at)), at];
    if (done.has(at)) return undefined;
    for (const next of edges.get(at) ?? []) {
      const cycle = visit(next, [...path, at]);
      if (cycle !== undefined) return cycle;
    }
    done.add(at);
    return undefined;
  };
  for (const start of edges.keys()) {
    const cycle = visit(start, []);
    if (cycle !== undefined) return cycle;
  }
  return undefined;
}

/** One line for each module, grouped by layer: the modules that it imports. */
function graph(): string {
  const modules = new Set([...edges.keys(), ...[...edges.values()].flatMap((targets) => [...targets])]);
  const lines: string[] = [];
  for (const layer of Object.keys(BELOW)) {
    const own = [...modules].filter((name) => name.split("/")[0] === layer).sort();
    if (own.length === 0) continue;
    lines.push(`${layer}${(BELOW[layer] ?? []).length === 0 ? "" : `  (may use ${(BELOW[layer] ?? []).join(", ")})`}`);
    for (const name of own) {
      const targets = [...(edges.get(name) ?? [])].filter((to) => !to.startsWith("base/")).sort();
      lines.push(`  ${name}${targets.length === 0 ? "" : ` -> ${targets.join(", ")}`}`);
    }
  }
  return lines.join("\n");
}

for (const { file, specifier } of importsOf(root)) checkImport(file, specifier);
checkProgramFolders();
for (const graph of [edges, files]) {
  const cycle = findCycle(graph);
  if (cycle !== undefined) faults.push(`a cycle of imports: ${cycle.join(" -> ")}`);
}

const page = join(root, "ARCHITECTURE.md");
const before = readFileSync(page, "utf8");
const [begin, end] = MARKS;
const after = `${before.slice(0, before.indexOf(begin))}${begin}\n\`\`\`text\n${graph()}\n\`\`\`\n${before.slice(before.indexOf(end))}`;
if (process.argv.includes("--write")) writeFileSync(page, after);
else if (after !== before)
  faults.push("ARCHITECTURE.md does not show the present graph: run node tools/check-layers.ts --write");

for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exitCode = 1;
