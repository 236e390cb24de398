import { join } from "node:path";
import { claimText, type Estate } from "#base/estate";
import { SERVED_SOCKETS, servedSockets } from "#base/served-sockets";
import {
  bootId,
  initialValues,
  ownNetns,
  type ReadEstates,
  RUN_FOLDER,
  readEstates,
  STATE_FOLDER,
  setOf,
  templatesOf,
} from "../../shared/estate/index.ts";
import type { Program } from "../../shared/program/index.ts";
import { folderInRoot, type NodePlaces } from "./places.ts";

/** Flags of programs as `isthmus uninstall` got them, by program and key; `undefined`: not given. */
export type GivenFlags = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

/**
 * Returns all that the programs of a node own: by their estates, by the flags that were given, by the sockets that an estate has and root has marked as served, and by their defaults. `templates` are their estates with the default flags.
 */
export function readOwned(
  programs: readonly Program[],
  given: GivenFlags,
  at: Pick<NodePlaces, "root">,
): Pick<NodePlaces, "templates" | "owned"> {
  const withEstate = programs.flatMap(({ name, flags, estate }) =>
    estate === undefined ? [] : [{ name, flags, estate }],
  );
  const templates = templatesOf(programs);
  const fromFlags = withEstate.flatMap(({ name, flags, estate }) => {
    const own = Object.entries(given[name] ?? {}).filter(([, value]) => value !== undefined);
    if (own.length === 0) return [];
    return [setOf(name, estate({ ...initialValues(flags), ...Object.fromEntries(own) }), "flags")];
  });
  const [run, state] = [RUN_FOLDER, STATE_FOLDER].map((folder) => folderInRoot(at, folder)) as [string, string];
  const stored = readEstates(templates, {
    foldersOf: (program) => ({ run: join(run, program), state: join(state, program) }),
    boot: bootId(),
    netns: ownNetns(),
  });
  const served = withEstate.flatMap(({ name, flags, estate }) => {
    // Only root can have marked them. Those without an estate are of other network namespaces, such as a lab's.
    const claimed = new Set(stored.sets.flatMap((set) => (set.program === name ? set.files : [])));
    const sockets = servedSockets({ kind: name, folder: folderInRoot(at, SERVED_SOCKETS) });
    return sockets
      .filter((socket) => claimed.has(socket))
      .map((socket) => ({ ...setOf(name, estate({ ...initialValues(flags), socket }), "sockets"), kernel: [] }));
  });
  const defaults = withEstate.map(({ name, flags, estate }) => setOf(name, estate(initialValues(flags)), "defaults"));
  return { templates, owned: { ...stored, sets: [...stored.sets, ...fromFlags, ...served, ...defaults] } };
}

/** The numbers that are looked for, as a sentence. Pure. */
export function scopeText(templates: ReadonlyMap<string, Estate>, { sets, known }: ReadEstates): string {
  const texts = [...templates.keys()].flatMap((program) => {
    const claims = sets
      .filter((set) => set.program === program)
      .flatMap(({ kernel }) => kernel)
      .filter(({ kind, in: place }) => place === undefined && (kind === "routes" || kind === "rules"));
    return claims.length === 0
      ? []
      : [`of ${program}: ${[...new Set(claims.map((claim) => claimText(claim)))].join("; ")}`];
  });
  const by =
    known.size === 0
      ? "no program has left an estate here, so only the defaults and the flags count: give the flags of programs that had other numbers (--help)"
      : `the numbers are those of the estates of ${[...known].join(", ")}, of the flags (--help), and the defaults`;
  return `${by}. Looked for routes and rules ${texts.join(", and ")}`;
}
