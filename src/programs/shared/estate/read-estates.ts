import { acceptClaims, type ClaimSet, type Estate, EstateError, type KernelClaim, readEstate } from "#base/estate";

/** The claims of one configuration of a program in this network namespace: all that it owns, or may own. */
export interface OwnedSet {
  readonly program: string;
  readonly source: "estate" | "flags" | "sockets" | "defaults";
  readonly kernel: readonly KernelClaim[];
  readonly files: readonly string[];
  /** The user who wrote the estate; root for flags and defaults. */
  readonly uid: number;
}

/** The estates of this host. */
export interface ReadEstates {
  readonly sets: readonly OwnedSet[];
  /** Programs whose configuration since the boot is known. */
  readonly known: ReadonlySet<string>;
  /** Estates and claims that do not count, one line each. */
  readonly refused: readonly string[];
}

/** The place of the reader. */
export interface EstatePlaces {
  /** The folders of a program in which an estate may be: in /run, which a boot empties, and in a folder that stays. */
  readonly foldersOf: (program: string) => { readonly run: string; readonly state: string };
  readonly boot: string;
  /** The inode number of the network namespace. */
  readonly netns: bigint;
}

/**
 * Reads the estates of programs. `templates` are their estates with any flags. A set counts if it is of this network namespace; of one of an earlier boot only the
 * paths do. Throws no error of a file: a fault is a line of `refused`.
 */
export function readEstates(templates: ReadonlyMap<string, Estate>, at: EstatePlaces): ReadEstates {
  const sets: OwnedSet[] = [];
  const known = new Set<string>();
  const refused: string[] = [];
  for (const [program, template] of templates) {
    const { run, state } = at.foldersOf(program);
    for (const [folder, isOfBoot] of [
      [run, true],
      [state, false],
    ] as const) {
      const stored = readStored(folder, program, refused);
      for (const set of stored?.sets ?? []) {
        const isHere = set.netns === String(at.netns);
        const isNow = isOfBoot || set.boot === at.boot;
        if (isNow && !isHere) continue;
        if (isNow) known.add(program);
        const uid = stored?.uid ?? -1;
        const { kernel, refused: why } = acceptClaims(template, isNow ? set : NOTHING, { isRoots: uid === 0 });
        for (const line of why) refused.push(`the estate of ${program} claims ${line}`);
        sets.push({ program, source: "estate", kernel, files: set.files, uid });
      }
    }
  }
  return { sets, known, refused: [...new Set(refused)] };
}

const NOTHING: Pick<ClaimSet, "kernel"> = { kernel: [] };

function readStored(folder: string, program: string, refused: string[]): ReturnType<typeof readEstate> | undefined {
  try {
    return readEstate(folder, program);
  } catch (error) {
    if (!(error instanceof EstateError)) throw error;
    if (error.code !== "absent") refused.push(error.message);
    return undefined;
  }
}

/** The set of an estate that is known by flags, by a socket that was served, or by the defaults. Pure. */
export function setOf(program: string, { kernel, files }: Estate, source: "flags" | "sockets" | "defaults"): OwnedSet {
  return {
    ...{ program, source, uid: 0 },
    kernel: kernel.flatMap(({ claims }) => claims),
    files: files.map(({ path }) => path),
  };
}

/** True if a path is one of the program's own folders or below it, and names no other place by its parts. Pure. */
export function isBelow(folders: readonly string[], path: string): boolean {
  if (path.split("/").includes("..")) return false;
  return folders.some((folder) => path === folder || path.startsWith(`${folder}/`));
}
