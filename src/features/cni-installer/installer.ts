import type { Stats } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { describeError, ExpectedError } from "#base/errors";
import { FileError, replaceFile } from "#base/file";
import { DEFAULT_SOCKET } from "#wire/cni";
import { handoverPath, isLauncher, launcherFor, STANDALONE_SUFFIX } from "#wire/cni-handover";

/** A launcher is much smaller; a larger executable is not read to find out. */
const MAX_LAUNCHER_BYTES = 65_536;
/** The maximum depth of delegates. */
const MAX_DEPTH = 32;

/**
 * - `cannot-install`: a file cannot be put in place; files that were there are whole.
 * - `removed`: files are missing, and stay so, because others have removed them again and again.
 */
export type InstallErrorCode = "cannot-install" | "removed";

/** The files of a node's network are not in place. */
export class InstallError extends ExpectedError<InstallErrorCode> {
  override readonly name = "InstallError";
}

/** Names and folders of an installation. */
export interface CniInstallation {
  /** File name of the configuration. */
  readonly confName: string;
  readonly etcDir: string;
  readonly binDir: string;
  /** The executable to install as `coil`; `undefined`: none. */
  readonly binary: string | undefined;
  /** Further executables, such as `vpc-neutron`: each is installed under its file name. */
  readonly plugins: readonly string[];
  /** Other configurations are deleted; else they are renamed to `*.coil-disabled`. */
  readonly removeOthers: boolean;
}

/** The part of a file's name by which Coil's installer knows a list. */
const LIST = "conflist";
/** The plugins that call other networks. */
const META_PLUGINS: ReadonlySet<unknown> = new Set(["multus", "multus-shim"]);
/** The plugins of the suite. */
const TYPES: ReadonlySet<string> = new Set(["coil", "vpc-neutron", "vpc-alcor"]);

/** The changes of an installation. */
export interface CniInstallationChanges {
  readonly binaryChanged: boolean;
  readonly configChanged: boolean;
  /** File names of other configurations that are out of use now. */
  readonly disabled: readonly string[];
  /** Those of them that have a plugin of this suite: another installation of the suite has written them, or an earlier one. */
  readonly disabledOfSuite: readonly string[];
}

/** Puts the executable and the configuration in place, each file at once, and the others aside. Throws {@link InstallError}. */
export async function installCni(installation: CniInstallation, conflist: string): Promise<CniInstallationChanges> {
  const { etcDir, binDir } = installation;
  try {
    await makeFolder(etcDir);
    await makeFolder(binDir);
    // The executable comes first: a configuration must never name one that is missing.
    let binaryChanged = await installBinary(installation, conflist);
    for (const plugin of installation.plugins) {
      if (await installPlugin(installation, plugin)) binaryChanged = true;
    }
    const configChanged = await installConfig(installation, conflist);
    return { binaryChanged, configChanged, ...(await disableOthers(installation)) };
  } catch (error) {
    throw asInstallError(error, installation);
  }
}

/** Converts a failure of the file system; any other error is returned as it is. */
export function asInstallError(
  error: unknown,
  { etcDir, binDir }: Pick<CniInstallation, "etcDir" | "binDir">,
): unknown {
  if (!(error instanceof FileError || (error instanceof Error && "syscall" in error))) return error;
  return new InstallError("cannot-install", `cannot install into ${etcDir} and ${binDir}: ${error.message}`, {
    cause: error,
  });
}

/** Copies a further executable, after the standalone one that it runs, if there is one. Returns true if one differed. */
export async function installPlugin({ binDir }: Pick<CniInstallation, "binDir">, plugin: string): Promise<boolean> {
  let isChanged = false;
  for (const source of await pluginFiles(plugin))
    if (await copyExecutable(source, join(binDir, basename(source)))) isChanged = true;
  return isChanged;
}

/** The files of a further executable, in the order in which they are to be in place. */
export async function pluginFiles(plugin: string): Promise<readonly string[]> {
  const standalone = `${plugin}${STANDALONE_SUFFIX}`;
  return (await statOptional(standalone)) === undefined ? [plugin] : [standalone, plugin];
}

/** The fault of a CNI configuration list, for example `name is missing`; `undefined` for a valid list. */
export function conflistFault(text: string): string | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    return describeError(error);
  }
  const { name, plugins } = (parsed ?? {}) as { readonly name?: unknown; readonly plugins?: unknown };
  if (typeof name !== "string" || name === "") return "the field name is missing";
  if (!Array.isArray(plugins) || plugins.length === 0) return "the field plugins is missing or empty";
  const untyped = plugins.findIndex((plugin: { readonly type?: unknown } | null) => typeof plugin?.type !== "string");
  return untyped >= 0 ? `plugins[${untyped}] has no type` : undefined;
}

/**
 * A launcher comes after the standalone executable that it runs where coild is not there, and gets the path of the hand-over socket that
 * belongs to the configuration's. Any other executable is installed as it is.
 */
export async function installBinary({ binDir, binary }: CniInstallation, conflist: string): Promise<boolean> {
  if (binary === undefined) return false;
  const target = join(binDir, "coil");
  const launcher = await readLauncher(binary);
  if (launcher === undefined) return copyExecutable(binary, target);
  const socket = handoverPath(socketOf(conflist));
  const standaloneChanged = await copyExecutable(`${binary}${STANDALONE_SUFFIX}`, `${target}${STANDALONE_SUFFIX}`);
  const content = socket === undefined ? launcher : launcherFor(launcher, socket);
  const there = await statOptional(target);
  if (there !== undefined && isExecutable(there, content.length) && (await readFile(target)).equals(content))
    return standaloneChanged;
  replaceFile(target, content, { mode: 0o755, sync: true });
  return true;
}

/** The launcher's file; `undefined` for a file that is none. */
export async function readLauncher(path: string): Promise<Uint8Array | undefined> {
  const { size } = await stat(path);
  if (size > MAX_LAUNCHER_BYTES) return undefined;
  const content = await readFile(path);
  return isLauncher(content) ? content : undefined;
}

/** The socket that the first `coil` of a configuration list names, also as a delegate. */
function socketOf(conflist: string): string {
  const socket = pluginsOf(JSON.parse(conflist) as Plugin).find(({ type }) => type === "coil")?.socket;
  return typeof socket === "string" && socket.startsWith("/") ? socket : DEFAULT_SOCKET;
}

/** A plugin, or a list of plugins. */
interface Plugin {
  readonly type?: unknown;
  readonly socket?: unknown;
  readonly plugins?: unknown;
  readonly delegate?: unknown;
  /** The delegates in a configuration of Multus. */
  readonly delegates?: unknown;
}

/** The plugins that a configuration of anybody names, also as delegates; none if it is not JSON, or nested deeper than 32. Pure. */
export function typesOf(text: string): readonly string[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
  if (typeof parsed !== "object" || parsed === null) return [];
  return pluginsOf(parsed).flatMap(({ type }) => (typeof type === "string" ? type : []));
}

/** Returns true if one of these plugins is of the suite. Pure. */
export function hasSuitePlugin(types: readonly string[]): boolean {
  return types.some((type) => TYPES.has(type));
}

function pluginsOf(one: Plugin, depth = 0): readonly Plugin[] {
  if (depth > MAX_DEPTH) return [];
  const lists = [one.plugins, one.delegates].flatMap((list) =>
    Array.isArray(list) ? (list as readonly unknown[]) : [],
  );
  const below = [...lists, one.delegate];
  const isPlugin = (value: unknown): value is Plugin => typeof value === "object" && value !== null;
  return [one, ...below.filter(isPlugin).flatMap((plugin) => pluginsOf(plugin, depth + 1))];
}

async function copyExecutable(source: string, target: string): Promise<boolean> {
  if (await sameContent(source, target)) return false;
  replaceFile(target, { copyOf: source }, { mode: 0o755, sync: true });
  return true;
}

export async function installConfig(installation: CniInstallation, text: string): Promise<boolean> {
  const target = join(installation.etcDir, installation.confName);
  const there = await statOptional(target);
  if (there !== undefined && modeOf(there) === 0o644 && (await readFile(target)).equals(Buffer.from(text)))
    return false;
  replaceFile(target, text, { mode: 0o644, sync: true });
  return true;
}

/** Makes a folder with its parents. Node.js's recursive `mkdir` never ends on a file system that allows no folders, as /proc. */
async function makeFolder(path: string): Promise<void> {
  const isFolder = async (): Promise<boolean> => (await statOptional(path))?.isDirectory() === true;
  if (await isFolder()) return;
  if (dirname(path) !== path) await makeFolder(dirname(path));
  try {
    await mkdir(path, { mode: 0o755 });
  } catch (error) {
    // Somebody may have made it meanwhile.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST" || !(await isFolder())) throw error;
  }
}

/** Puts the configurations of other networks aside, which the runtime could choose by their file names. Returns these names. */
async function disableOthers({
  etcDir,
  confName,
  removeOthers,
}: CniInstallation): Promise<Pick<CniInstallationChanges, "disabled" | "disabledOfSuite">> {
  const entries = await readdir(etcDir, { withFileTypes: true });
  const disabled: string[] = [];
  const disabledOfSuite: string[] = [];
  for (const { name } of entries.filter((one) => isRival(one.name, confName, one.isDirectory()))) {
    const path = join(etcDir, name);
    const text = await readOptional(path);
    // Multus calls the network that it is set up for, which may be this one, and writes its file again.
    if (!name.includes(LIST) && isOfMultus(text)) continue;
    disabled.push(name);
    if (isOfSuite(text)) disabledOfSuite.push(name);
    try {
      if (removeOthers) await rm(path);
      else await rename(path, `${path}.coil-disabled`);
    } catch (error) {
      // Another installer was faster.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
  return { disabled, disabledOfSuite };
}

/**
 * Returns true if a name is that of a configuration beside our own that must not be in force: a list, as Coil has it, or a single configuration that a runtime reads
 * before ours. Runtimes read files by the end of their names, in the order of the names. Pure.
 */
export function isRival(name: string, confName: string, isFolder: boolean): boolean {
  if (name === confName || name.endsWith(".coil-disabled")) return false;
  const isRead = /\.(conf|conflist|json)$/.test(name);
  // Another installer's half-written file becomes a configuration by its name.
  if (name.startsWith(".") && !isRead) return false;
  return name.includes(LIST) || (isRead && !isFolder && name < confName);
}

/** The text of a file; empty for what cannot be read, such as a folder or a link to nothing, which can be put aside all the same. */
export async function readOptional(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "syscall" in error) return "";
    throw error;
  }
}

/** Returns true if a configuration list of anybody names a plugin of the suite. Pure. */
export function isOfSuite(text: string): boolean {
  if (conflistFault(text) !== undefined) return false;
  const { plugins } = JSON.parse(text) as { readonly plugins: readonly { readonly type: string }[] };
  return plugins.some(({ type }) => TYPES.has(type));
}

/** Returns true if a single configuration of anybody is of Multus. Pure. */
export function isOfMultus(text: string): boolean {
  try {
    return META_PLUGINS.has((JSON.parse(text) as { readonly type?: unknown } | null)?.type);
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

async function sameContent(a: string, b: string): Promise<boolean> {
  const [left, right] = await Promise.all([stat(a), statOptional(b)]);
  if (right === undefined || !isExecutable(right, left.size)) return false;
  const [one, other] = await Promise.all([readFile(a), readFile(b)]);
  return one.equals(other);
}

const isExecutable = (file: Stats, size: number): boolean => file.size === size && modeOf(file) === 0o755;

function modeOf(file: Stats): number {
  return file.mode & 0o777;
}

export async function statOptional(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
