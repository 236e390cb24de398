/**
 * Builds the shipped files into dist/: the `isthmus` bundle for Node, the CNI executable by Bun, links under every program's
 * name. Does nothing when the sources have not changed since the last build.
 *
 *     node tools/build.ts [--force]
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  globSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { builtinModules } from "node:module";
import { basename, dirname, join, relative } from "node:path";
import { type BuildOptions, build, type Plugin } from "esbuild";
import { PROGRAMS } from "../src/programs/programs.ts";
import { VPC_PLUGINS } from "../src/programs/shared/cni-plugin/index.ts";
import { ownFile } from "../src/programs/start/own-file.ts";
import { DEFAULT_SOCKET } from "../src/wire/cni/index.ts";
import { handoverPath, launcherFor, STANDALONE_SUFFIX } from "../src/wire/cni-handover/index.ts";
import { compileLauncher } from "./cni-launcher/index.ts";
import { compileAhead } from "./compile-ahead.ts";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const stampFile = join(dist, ".stamp");

/** Programs that the one executable also answers to by name; `isthmus` itself dispatches on its first word. */
const LINKS = Object.entries(PROGRAMS).flatMap(([name, { linked }]) => (linked === true ? [name] : []));
/** Programs that `isthmus node` runs in its process. */
const PARTS_OF_NODE = Object.entries(PROGRAMS).flatMap(([name, { onNode }]) => (onNode === true ? [name] : []));
/** Programs that have a file of the build for themselves: those that start often, and need no other program. doctor and audit read the estates of all. */
const OWN_FILES = [...LINKS, "node", "lab", "validate"];

function stamp(): string {
  const hash = createHash("sha256");
  const files = globSync(
    "{src/**/*.{ts,cjs,proto},package-lock.json,tools/{build,compile-ahead}.ts,tools/cni-launcher/*.{c,h,ts},tools/launcher.sh,tools/plain-assert.cjs,deploy/crds/*.yaml}",
    {
      cwd: root,
    },
  );
  for (const file of files.filter((name) => !name.endsWith(".test.ts")).sort()) {
    hash.update(`${file}\0`).update(readFileSync(join(root, file)));
  }
  return hash.digest("hex");
}

/**
 * Modules of Node by their objects. An `import` of one reads each of its exports, and some of these load more of Node: that of node:http takes
 * 13 MiB and 30 ms, that of node:fs and node:util 20 ms. `require` does not.
 */
const builtinsUnread: Plugin = {
  name: "builtins-unread",
  setup({ onResolve, onLoad }) {
    const names = new Set(builtinModules.map((name) => name.replace(/^node:/, "")));
    const nameOf = (path: string): string => path.replace(/^node:/, "");
    onResolve({ filter: /^[a-z][a-z0-9_:/]*$/ }, ({ path }) =>
      names.has(nameOf(path)) ? { path: nameOf(path), namespace: "builtin" } : undefined,
    );
    onLoad({ filter: /.*/, namespace: "builtin" }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(`node:${path}`)});`,
    }));
  },
};

/** koffi by its CommonJS entry, whose modules of Node are not read either. It stays a package beside the bundle. */
const koffiRequired: Plugin = {
  name: "koffi-required",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^koffi$/ }, () => ({ path: "koffi", namespace: "koffi" }));
    onLoad({ filter: /.*/, namespace: "koffi" }, () => ({ contents: 'module.exports = isthmusRequire("koffi");' }));
  },
};

/**
 * Parts of packages that load much of Node for little. undici's assertions load node:assert with its printer of differences (10 ms), and
 * prom-client's client of a push gateway, which no program uses, node:https (15 ms). undici's HTTP/2 loads node:http2 (10 ms): it is loaded
 * when a server has chosen that protocol.
 */
const lightParts: Plugin = {
  name: "light-parts",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?assert$/ }, ({ importer }) =>
      importer.includes("/undici/") ? { path: join(root, "tools/plain-assert.cjs") } : undefined,
    );
    onResolve({ filter: /\/pushgateway$/ }, ({ importer }) =>
      importer.includes("/prom-client/") ? { path: "pushgateway", namespace: "unused" } : undefined,
    );
    onLoad({ filter: /.*/, namespace: "unused" }, () => ({ contents: "module.exports = undefined;" }));
    onResolve({ filter: /\/client-h2\.js$/, namespace: "file" }, ({ importer, resolveDir, path }) =>
      importer.includes("/undici/")
        ? { path: relative(root, join(resolveDir, path)), namespace: "on-call" }
        : undefined,
    );
    onLoad({ filter: /.*/, namespace: "on-call" }, ({ path }) => ({
      contents: `module.exports = (...values) => require(${JSON.stringify(`./${path}`)})(...values);`,
      resolveDir: root,
    }));
  },
};

/** In the file of some programs, all others: nothing leads there, since the start loads the file by the program's name. */
function withoutOthers(programs: ReadonlySet<string>): Plugin {
  return {
    name: "without-others",
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /^\.\// }, ({ kind, importer, path }) => {
        const isOther = kind === "dynamic-import" && importer === join(root, "src/programs/programs.ts");
        return isOther && !programs.has(basename(dirname(path))) ? { path, namespace: "other" } : undefined;
      });
      onLoad({ filter: /.*/, namespace: "other" }, ({ path }) => ({
        contents: `throw new Error("${path} is not in this file");`,
      }));
    },
  };
}

const COMMON: BuildOptions = {
  absWorkingDir: root,
  outdir: "dist",
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node24",
  minify: false,
  legalComments: "none",
  // CommonJS dependencies inside the bundle call require().
  banner: {
    js: 'const isthmusRequire = process.getBuiltinModule("node:module").createRequire(import.meta.url), require = isthmusRequire;',
  },
  logLevel: "warning",
};
const PLUGINS = [lightParts, builtinsUnread, koffiRequired];

/**
 * One file for each program with a link of its own: a start resolves, reads and links one module in place of some sixty, which is a quarter
 * of its time. All programs are in a bundle besides, which serves the rest, and has each module once.
 */
async function buildBundle(version: string): Promise<void> {
  const define = {
    "process.env.ISTHMUS_VERSION": JSON.stringify(version),
    "process.env.ISTHMUS_OWN_FILES": JSON.stringify(OWN_FILES.join(" ")),
  };
  const whole = build({
    ...COMMON,
    entryPoints: {
      isthmus: "src/programs/start/start.ts",
      // These entry points run on their own threads, so they are separate files.
      "uplink-worker": "src/features/uplink-proxy/workers/worker.ts",
    },
    // Each program loads only the modules that it needs; modules of several programs are shared files.
    splitting: true,
    metafile: true,
    plugins: PLUGINS,
    sourcemap: "linked",
    define,
  });
  const own = OWN_FILES.map((name) =>
    build({
      ...COMMON,
      entryPoints: { [ownFile(name)]: "src/programs/start/isthmus.ts" },
      outExtension: { ".js": ".cjs" },
      format: "cjs",
      // One expression (`src/programs/start/load-compiled.ts`).
      banner: { js: "(function (exports, require, module, isthmusUrl) { const isthmusRequire = require;" },
      footer: { js: "})" },
      metafile: true,
      plugins: [withoutOthers(new Set(name === "node" ? [name, ...PARTS_OF_NODE] : [name])), ...PLUGINS],
      define: { ...define, "import.meta.url": "isthmusUrl" },
    }),
  );
  const results = await Promise.all([whole, ...own]);
  // Files of earlier builds have other names and are never loaded.
  const built = new Set(
    results.flatMap(({ metafile }) => Object.keys(metafile?.outputs ?? {}).map((file) => basename(file))),
  );
  for (const file of built) {
    if (!file.endsWith(".map")) makeAscii(join(dist, file));
    if (file.endsWith(".cjs")) endWithHash(join(dist, file));
  }
  for (const file of globSync("*.{mjs,cjs}{,.map}", { cwd: dist })) {
    if (!built.has(file)) rmSync(join(dist, file), { force: true });
  }
}

/**
 * Replaces characters beyond ASCII in comments. With one of them, V8 would keep the whole file with two bytes for each character: 2 MiB more
 * in each process, and 10 ms of the processor at each start. Strings have none, because esbuild escapes them.
 */
function makeAscii(file: string): void {
  const text = readFileSync(file, "utf8");
  const ascii = text.replace(/^(?:\s*(?:\*|\/\/|\/\*)).*$/gm, (line) => line.replaceAll(/[^\0-\x7f]/gu, "?"));
  const [beyond] = /^.*[^\0-\x7f].*$/m.exec(ascii) ?? [];
  if (beyond !== undefined) throw new Error(`${file} has characters beyond ASCII in a line of code: ${beyond}`);
  if (ascii !== text) writeFileSync(file, ascii);
}

/** Ends a program's file with a hash of its text, after which its compiled code is named. */
function endWithHash(file: string): void {
  const text = readFileSync(file, "utf8");
  writeFileSync(file, `${text}// ${createHash("sha256").update(text).digest("hex").slice(0, 16)}\n`);
}

/** The launcher's text: each memory profile becomes the patterns of its programs, called by their names or as the first word. */
function launcherText(): string {
  const patterns = (profile: string): string => {
    const names = Object.entries(PROGRAMS).flatMap(([name, { memory }]) => (memory === profile ? [name] : []));
    return names.flatMap((name) => [`${name}\\ *`, `*\\ ${name}`]).join(" | ");
  };
  return readFileSync(join(root, "tools/launcher.sh"), "utf8").replaceAll(/@(\w+)@/g, (_token, profile) =>
    patterns(profile),
  );
}

/** The launcher runs the bundle under the pinned Node; links to it carry the names of the programs. */
function writeLauncher(): void {
  writeFileSync(join(dist, "isthmus"), launcherText(), { mode: 0o755 });
  chmodSync(join(dist, "isthmus"), 0o755);
  for (const name of LINKS) {
    rmSync(join(dist, name), { force: true });
    symlinkSync("isthmus", join(dist, name));
  }
}

/** The only package that is not in the bundle, because it has a native library. Its sources and documentation are left out. */
function copyKoffi(): void {
  const modules = join(dist, "node_modules");
  rmSync(modules, { recursive: true, force: true });
  const from = join(root, "node_modules");
  const isUsed = (file: string): boolean => !/\/koffi\/(doc|vendor)(\/|$)|\.(cc|hh|md|S|asm)$/.test(file);
  cpSync(join(from, "koffi"), join(modules, "koffi"), { recursive: true, filter: isUsed });
  cpSync(join(from, "@koromix/koffi-linux-x64"), join(modules, "@koromix/koffi-linux-x64"), { recursive: true });
}

/** The launcher and the standalone executable; each is first written under another name, because it may be running. */
function buildCni(): void {
  const bun = join(root, "node_modules/@oven/bun-linux-x64/bin/bun");
  const launcher = join(dist, "cni", "coil");
  const target = `${launcher}${STANDALONE_SUFFIX}`;
  mkdirSync(join(dist, "cni"), { recursive: true });
  const args = [
    ...["build", "--compile", "--minify", "--bytecode", "--target=bun-linux-x64"],
    // The process lives for milliseconds, so little code should be compiled. It must not read settings from the folder in which it is
    // started.
    ...["--compile-jit-policy=100", "--no-compile-autoload-dotenv", "--no-compile-autoload-bunfig"],
    "src/programs/runtime/coil-standalone/program.ts",
  ];
  execFileSync(bun, [...args, "--outfile", `${target}.new`], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  // The file is written again sequentially, as an installer does: after the compiler's patches it is in small pieces in the page cache,
  // which makes each start a millisecond slower.
  copyFileSync(`${target}.new`, `${target}.whole`);
  rmSync(`${target}.new`);
  renameSync(`${target}.whole`, target);
  // The same file under other names is the plugins of VPCs; a symbolic link would show the file's first name to it. A runtime calls what is before it, which
  // takes variables of Bun out of the environment.
  const vpc = compileLauncher("vpc", "x64");
  for (const name of VPC_PLUGINS) {
    const path = join(dist, "cni", name);
    for (const one of [path, `${path}${STANDALONE_SUFFIX}`]) rmSync(one, { force: true });
    linkSync(target, `${path}${STANDALONE_SUFFIX}`);
    writeFileSync(path, vpc, { mode: 0o755 });
    chmodSync(path, 0o755);
  }
  const socket = handoverPath(DEFAULT_SOCKET);
  if (socket === undefined)
    throw new Error(
      `${DEFAULT_SOCKET} is too long: the path of the hand-over socket would exceed the limit of a socket's path`,
    );
  writeFileSync(`${launcher}.new`, launcherFor(compileLauncher("coil", "x64"), socket), { mode: 0o755 });
  chmodSync(`${launcher}.new`, 0o755);
  renameSync(`${launcher}.new`, launcher);
}

const wanted = stamp();
const force = process.argv.includes("--force");
if (!force && existsSync(stampFile) && readFileSync(stampFile, "utf8") === wanted) process.exit(0);
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
mkdirSync(dist, { recursive: true });
rmSync(stampFile, { force: true });
await buildBundle(version);
writeLauncher();
copyKoffi();
compileAhead(dist, LINKS);
buildCni();
writeFileSync(stampFile, wanted);
console.log(`built dist/isthmus and dist/cni, version ${version}`);
