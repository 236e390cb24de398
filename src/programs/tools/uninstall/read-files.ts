import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { FileRole, OwnFile } from "#features/uninstall";
import { SENTINEL_PATH } from "#features/uplink-proxy";
import { isLauncher, STANDALONE_SUFFIX } from "#wire/cni-handover";
import { VPC_PLUGINS } from "../../shared/cni-plugin/index.ts";
import { isBelow, type OwnedSet, ownFolders, RUN_FOLDER, STATE_FOLDER } from "../../shared/estate/index.ts";
import { optional } from "../../shared/suite/index.ts";
import { folderInRoot, inRoot, type NodePlaces } from "./places.ts";

const SET_ASIDE = ".coil-disabled";
/** Types of plugins that a configuration of ours names. */
const PLUGINS = new Set(["coil", ...VPC_PLUGINS]);
const EXECUTABLES = ["coil", ...VPC_PLUGINS].flatMap((name) => [name, `${name}${STANDALONE_SUFFIX}`]);
/** A launcher is much smaller; a larger executable is not read to find out. */
const MAX_LAUNCHER_BYTES = 65_536;

/** The files and folders of the suite that are there. Throws errors of the file system. */
export function files(
  at: Pick<NodePlaces, "root" | "cniEtcDir" | "cniBinDir" | "templates" | "owned" | "nodePrograms">,
): readonly OwnFile[] {
  const { cniEtcDir, cniBinDir } = at;
  const folder = folderInRoot(at, cniEtcDir);
  const configurations = namesIn(folder).flatMap((name): readonly OwnFile[] => {
    const path = join(folder, name);
    // With another name the installer of before may have put an own one aside.
    if (name.endsWith(SET_ASIDE)) return [{ path, role: namesOurPlugin(path) ? "configuration" : "set-aside" }];
    return /\.conf(list)?$/.test(name) && namesOurPlugin(path) ? [{ path, role: "configuration" }] : [];
  });
  // A configuration of that name that is there by now is not replaced.
  const restored = configurations.filter(
    ({ path, role }) => role !== "set-aside" || !existsSync(path.slice(0, -SET_ASIDE.length)),
  );
  const last = [...runFolders(folderInRoot(at, RUN_FOLDER), at.nodePrograms), STATE_FOLDER];
  const folders = foldersOfPrograms(at);
  const paths = [...new Set([...ownPaths(at), ...folders])].filter((path) => !isInside([...folders, ...last], path));
  // The record of former settings is after the others: a run that is killed before still has it.
  const [early, late] = [false, true].map((isLate) => paths.filter((path) => path.endsWith(FORMER) === isLate)) as [
    string[],
    string[],
  ];
  const known: readonly (readonly [path: string, role: FileRole])[] = [
    ...EXECUTABLES.map((name) => [join(cniBinDir, name), "executable"] as const),
    ...[...early, SENTINEL_PATH, ...late].map((path) => [path, roleOf(path)] as const),
    ...last.map((path) => [path, "estate"] as const),
  ];
  const there = known
    .map(([path, role]): OwnFile => ({ path: inRoot(at, path), role }))
    .filter(({ path }) => isThere(path));
  const coil = inRoot(at, join(cniBinDir, "coil"));
  return [
    ...restored,
    ...there.map(
      (file): OwnFile => (file.path === coil && !isOurCoil(coil) ? { ...file, role: "foreign-executable" } : file),
    ),
  ];
}

/** The name of the record of former settings. */
const FORMER = "/coild.former.json";

function roleOf(path: string): FileRole {
  if (path.endsWith(".lock")) return "lock";
  if (/\.sock(\.call1)?$/.test(path)) return "socket";
  return /\.(served|json)$|-env$/.test(path) ? "record" : "state";
}

/** Folders of programs besides those in the suite's. */
function foldersOfPrograms({ templates }: Pick<NodePlaces, "templates">): readonly string[] {
  return [...templates].flatMap(([program, { folders }]) =>
    folders.filter((folder) => !ownFolders(program).includes(folder)),
  );
}

function isInside(folders: readonly string[], path: string): boolean {
  return folders.some((folder) => folder !== path && isBelow([folder], path));
}

/** The paths of all sets that are the programs' own; of estates those below their folders, and those that they have by default. */
export function ownPaths(at: Pick<NodePlaces, "templates" | "owned">): readonly string[] {
  return at.owned.sets.flatMap((set) => set.files.filter((path) => isOwnPath(at, set, path)));
}

function isOwnPath({ templates }: Pick<NodePlaces, "templates">, set: OwnedSet, path: string): boolean {
  if (set.source !== "estate") return true;
  const template = templates.get(set.program);
  if (template === undefined) return false;
  return isBelow(template.folders, path) || template.files.some((file) => file.path === path);
}

/** Paths of sets that root has written or given, whatever folder they are in: what is there may be opened, but not removed. */
export function rootsPaths({ owned }: Pick<NodePlaces, "owned">, program: string): readonly string[] {
  const sets = owned.sets.filter((set) => set.program === program && set.uid === 0);
  return [...new Set(sets.flatMap((set) => set.files))];
}

/** Paths that an estate names, that are there, of its writer's user, and in no folder of the program. */
export function outsidePaths(at: Pick<NodePlaces, "root" | "templates" | "owned">): readonly string[] {
  const own = new Set(ownPaths(at));
  const lines = at.owned.sets.flatMap((set) =>
    set.files
      .filter((path) => !own.has(path))
      .flatMap((path) => {
        const found = inRoot(at, path);
        return optional(() => lstatSync(found))?.uid === set.uid
          ? [
              `${found}: ${set.program} had it by its estate, in no folder of its own: remove it by hand if it is not needed`,
            ]
          : [];
      }),
  );
  return [...new Set(lines)];
}

/** The folder of sockets, if it has no socket but that of `nic-agent`, as labs have theirs there too; else those of the programs in it, with the API servers that they know. */
function runFolders(folder: string, programs: ReadonlySet<string>): readonly string[] {
  const names = namesIn(folder);
  const isOwn = (name: string): boolean => name.startsWith("vpc.sock") || name === "sockets" || programs.has(name);
  if (names.every(isOwn)) return [RUN_FOLDER];
  return names.filter((name) => programs.has(name)).map((name) => join(RUN_FOLDER, name));
}

/** Returns true if there is a file, or a link that leads nowhere. */
function isThere(path: string): boolean {
  return optional(() => lstatSync(path)) !== undefined;
}

/** Returns true if a configuration names a plugin of ours; a file that is no configuration, or that cannot be read, does not. */
function namesOurPlugin(path: string): boolean {
  const text = optional(() => readFileSync(path, "utf8"));
  if (text === undefined) return false;
  try {
    const { type, plugins = [] } = JSON.parse(text) as {
      readonly type?: unknown;
      readonly plugins?: readonly { readonly type?: unknown }[];
    };
    return [type, ...plugins.map((plugin) => plugin.type)].some((one) => PLUGINS.has(String(one)));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return false;
    throw error;
  }
}

/** `coil` of Coil has the same name: ours is the launcher, or stands beside the executable that it runs. */
function isOurCoil(path: string): boolean {
  const stats = optional(() => statSync(path));
  return stats?.isFile() === true && stats.size <= MAX_LAUNCHER_BYTES && isLauncher(readFileSync(path));
}

function namesIn(folder: string): readonly string[] {
  return existsSync(folder) ? readdirSync(folder).toSorted() : [];
}
