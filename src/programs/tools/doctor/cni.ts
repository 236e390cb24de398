import { accessSync, constants, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, extname, join } from "node:path";
import type { Fact } from "#base/diagnosis";
import { conflistFault } from "#features/cni-installer";
import { type CniFile, DAEMONS } from "#features/suite-report";
import { isLauncher, STANDALONE_SUFFIX } from "#wire/cni-handover";
import { optional } from "../../shared/suite/index.ts";

/** The files that runtimes read (libcni's ConfFiles). */
const EXTENSIONS: ReadonlySet<string> = new Set([".conf", ".conflist", ".json"]);
const MAX_FILES = 100;
/** The maximum depth of delegates, and size of a launcher in bytes. */
const MAX_DEPTH = 8;
const MAX_LAUNCHER_BYTES = 65_536;

/** The configurations of a folder in the order in which runtimes read them. */
export function readCniFiles(folder: string): Fact<readonly CniFile[]> {
  const names = optional(() => readdirSync(folder));
  if (names === undefined) return { fault: "the folder does not exist or may not be read" };
  const files = names.filter((name) => EXTENSIONS.has(extname(name))).sort();
  return {
    value: files.slice(0, MAX_FILES).map((file) =>
      cniFile(
        file,
        optional(() => readFileSync(join(folder, file), "utf8")),
      ),
    ),
  };
}

/** Returns the plugins that a configuration names. Pure. */
export function cniFile(file: string, text: string | undefined): CniFile {
  if (text === undefined) return { file, plugins: [], fault: "it cannot be read" };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { file, plugins: [], fault: `it is not JSON: ${error.message}` };
  }
  const fault = file.endsWith(".conflist") ? conflistFault(text) : undefined;
  return { file, plugins: pluginsOf(value, 0), ...(fault === undefined ? {} : { fault }) };
}

/** The plugins of a list, a single configuration, or of a delegate in one. */
function pluginsOf(value: unknown, depth: number): CniFile["plugins"] {
  if (typeof value !== "object" || value === null || depth > MAX_DEPTH) return [];
  const { type, socket, plugins, delegate, delegates, ipam } = value as Readonly<Record<string, unknown>>;
  const own =
    typeof type === "string" && type !== "" ? [{ type, socket: typeof socket === "string" ? socket : undefined }] : [];
  // Multus has a list of delegates.
  const lists = [plugins, delegates].flatMap((list: unknown) => (Array.isArray(list) ? list : []));
  const below = [...lists, delegate, ipam];
  return [...own, ...below.flatMap((one) => pluginsOf(one, depth + 1))];
}

/** The executables that the first configuration of the suite needs. */
export function executablesOf(
  files: readonly CniFile[],
  folder: string,
): readonly { readonly path: string; readonly fault?: string }[] {
  const own = files.find(({ plugins }) => plugins.some(({ type }) => Object.hasOwn(DAEMONS, type)));
  const types = [...new Set((own?.plugins ?? []).map(({ type }) => type))].filter((type) => !type.includes("/"));
  return types.flatMap((type) => {
    const path = join(folder, type);
    return isStandaloneNeeded(path) ? [stateOf(path), stateOf(`${path}${STANDALONE_SUFFIX}`)] : [stateOf(path)];
  });
}

/** The first bytes of an executable file of Linux (elf(5)). */
const ELF = Buffer.from("\x7fELF", "latin1");

function isStandaloneNeeded(path: string): boolean {
  const size = optional(() => statSync(path).size) ?? 0;
  if (size === 0 || size > MAX_LAUNCHER_BYTES || !Object.hasOwn(DAEMONS, basename(path))) return false;
  const content = optional(() => readFileSync(path)) ?? new Uint8Array();
  // `vpc-neutron` and `vpc-alcor` are as small, and know no socket.
  return isLauncher(content) || (basename(path) !== "coil" && Buffer.from(content).subarray(0, 4).equals(ELF));
}

function stateOf(path: string): { readonly path: string; readonly fault?: string } {
  const stats = optional(() => statSync(path));
  if (stats === undefined) return { path, fault: "is missing" };
  if (!stats.isFile() || stats.size === 0) return { path, fault: stats.isFile() ? "is empty" : "is not a file" };
  const canRun = optional(() => accessSync(path, constants.X_OK) === undefined && (stats.mode & 0o111) !== 0);
  return canRun === true ? { path } : { path, fault: "has no right to be executed: chmod 755 is missing" };
}
