/**
 * Builds what ships into dist/: the `isthmus` bundle for Node, the CNI executable by Bun, links under every program's
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
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { build, type Plugin } from "esbuild";
import { PROGRAMS } from "../src/programs/programs.ts";
import { DEFAULT_SOCKET } from "../src/wire/cni/index.ts";
import { handoverPath, STANDALONE_SUFFIX } from "../src/wire/cni-handover/index.ts";
import { buildLauncher, ENCODERS } from "./cni-launcher/index.ts";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const stampFile = join(dist, ".stamp");

/** Programs that the one executable also answers to by name; `isthmus` itself dispatches on its first word. */
const LINKS = Object.entries(PROGRAMS).flatMap(([name, { linked }]) => (linked === true ? [name] : []));

function stamp(): string {
  const hash = createHash("sha256");
  const files = globSync(
    "{src/**/*.ts,src/**/*.proto,package-lock.json,tools/build.ts,tools/cni-launcher/*.ts,tools/launcher.sh,tools/undici-core.cjs,deploy/crds/*.yaml}",
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
 * `import` of node:http reads each of its exports, one of which loads Node's own undici: 13 MiB and 30 ms for every program. The same object without
 * the reading.
 */
const httpUnread: Plugin = {
  name: "http-unread",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?http$/ }, () => ({ path: "http", namespace: "http-unread" }));
    onLoad({ filter: /.*/, namespace: "http-unread" }, () => ({
      contents: 'module.exports = process.getBuiltinModule("node:http");',
    }));
  },
};

async function buildBundle(version: string): Promise<void> {
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: {
      isthmus: "src/programs/start.ts",
      // Run on threads of their own, so they are files of their own.
      "uplink-worker": "src/features/uplink-proxy/workers/worker.ts",
    },
    outdir: "dist",
    outExtension: { ".js": ".mjs" },
    bundle: true,
    // A program loads what it needs, and shares the rest with the others.
    splitting: true,
    metafile: true,
    platform: "node",
    format: "esm",
    target: "node24",
    external: ["koffi"],
    alias: { undici: join(root, "tools/undici-core.cjs") },
    plugins: [httpUnread],
    sourcemap: "linked",
    minify: false,
    legalComments: "none",
    define: { "process.env.ISTHMUS_VERSION": JSON.stringify(version) },
    // CommonJS dependencies inside the bundle ask for require().
    banner: {
      js: 'import { createRequire as isthmusRequire } from "node:module"; const require = isthmusRequire(import.meta.url);',
    },
    logLevel: "warning",
  });
  // Parts of earlier builds have other names; nobody would ever load them.
  const built = new Set(Object.keys(metafile.outputs).map((file) => basename(file)));
  for (const file of globSync("*.mjs{,.map}", { cwd: dist })) {
    if (!built.has(file)) rmSync(join(dist, file), { force: true });
  }
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

/** The one package that is not in the bundle, for it brings a native library. Without its sources and documentation. */
function copyKoffi(): void {
  const modules = join(dist, "node_modules");
  rmSync(modules, { recursive: true, force: true });
  const from = join(root, "node_modules");
  const isUsed = (file: string): boolean => !/\/koffi\/(doc|vendor)(\/|$)|\.(cc|hh|md|S|asm)$/.test(file);
  cpSync(join(from, "koffi"), join(modules, "koffi"), { recursive: true, filter: isUsed });
  cpSync(join(from, "@koromix/koffi-linux-x64"), join(modules, "@koromix/koffi-linux-x64"), { recursive: true });
}

/** V8's compiled code of what each program loads at its start: a quarter of the time until it runs. */
function compileAhead(): void {
  rmSync(join(dist, ".compile-cache"), { recursive: true, force: true });
  const { NODE_COMPILE_CACHE: _, ...env } = process.env;
  for (const name of LINKS) {
    execFileSync(join(dist, name), ["--version"], { stdio: ["ignore", "ignore", "inherit"], env });
  }
}

/** The launcher and the standalone executable; each is written under another name first, for it may be running. */
function buildCni(): void {
  const bun = join(root, "node_modules/@oven/bun-linux-x64/bin/bun");
  const launcher = join(dist, "cni", "coil");
  const target = `${launcher}${STANDALONE_SUFFIX}`;
  mkdirSync(join(dist, "cni"), { recursive: true });
  const args = [
    ...["build", "--compile", "--minify", "--bytecode", "--target=bun-linux-x64"],
    // It lives for milliseconds: compile little. And it must not read settings out of the folder it is started in.
    ...["--compile-jit-policy=100", "--no-compile-autoload-dotenv", "--no-compile-autoload-bunfig"],
    "src/programs/cni/main.ts",
  ];
  execFileSync(bun, [...args, "--outfile", `${target}.new`], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  // Written again from end to end, as an installer does: what the compiler patched together lies in small pieces in the page
  // cache, which costs each start a millisecond.
  copyFileSync(`${target}.new`, `${target}.whole`);
  rmSync(`${target}.new`);
  renameSync(`${target}.whole`, target);
  const socket = handoverPath(DEFAULT_SOCKET);
  if (socket === undefined) throw new Error(`${DEFAULT_SOCKET} is too long for a hand-over socket beside it`);
  writeFileSync(`${launcher}.new`, buildLauncher(ENCODERS.x64, socket), { mode: 0o755 });
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
compileAhead();
buildCni();
writeFileSync(stampFile, wanted);
console.log(`built dist/isthmus and dist/cni, version ${version}`);
