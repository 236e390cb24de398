/** The estates of programs as tables of the pages. */
import type { FlagSet, FlagValues } from "#base/config";
import {
  claimText,
  type Estate,
  files as fileTable,
  kernel as kernelTable,
  NO_ESTATE,
  type Section,
} from "#base/estate";
import type { Program } from "../../src/programs/shared/program/index.ts";

const OWN_FOLDERS =
  "its own folders. `estate.json` of those in `isthmus` has the numbers and paths of this page as they are configured, for [`isthmus uninstall`](uninstall.md) ([how](../design/estate.md))";

/** The estate of a program with its default flags. */
export function initialEstate({ estate, flags }: Program): Estate {
  const initial = Object.fromEntries(Object.entries(flags).map(([key, flag]) => [key, flag.initial]));
  return estate === undefined ? NO_ESTATE : estate(initial as FlagValues<FlagSet>);
}

/** The sections of a program's reference page. */
export function estateSections(program: Program): readonly Section[] {
  const { sections, files, folders, kernel } = initialEstate(program);
  const own = [
    ...files.map(({ path, what }) => [`\`${path}\``, what]),
    ...(folders.length === 0 ? [] : [[quotedList(folders), OWN_FOLDERS]]),
  ];
  const marks = marksOf(kernel);
  return [
    ...sections,
    ...(own.length === 0 ? [] : [fileTable(...own)]),
    ...(marks.length === 0 ? [] : [kernelTable(...marks)]),
  ];
}

/** Rows with the marks of holdings and what they are. */
function marksOf(kernel: Estate["kernel"]): readonly (readonly [mark: string, what: string])[] {
  return kernel
    .filter(({ claims }) => claims.length > 0)
    .map(({ claims, flags = {}, what }) => [claims.map((claim) => claimText(claim, quoted(flags))).join("; "), what]);
}

/** Flags as the pages write them. */
function quoted(flags: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(flags).map(([field, flag]) => [field, flag.startsWith("`") ? flag : `\`${flag}\``]),
  );
}

function quotedList(paths: readonly string[]): string {
  return paths.map((path) => `\`${path}\``).join(", ");
}

/** The rows of "Who owns what": marks in the kernel, files and folders, and objects. `constants` has the sections of programs that are in no estate. */
export function ownerRows(
  programs: readonly Program[],
  constants: Readonly<Record<string, readonly Section[]>>,
): readonly (readonly string[])[] {
  return programs.flatMap((program) => {
    const { kernel, files, folders, sections } = initialEstate(program);
    const listed = constants[program.name] ?? [];
    const objects = [...sections, ...listed].filter(({ kind }) => kind === "objects" || kind === "marks");
    const rows = [
      ...marksOf(kernel.map((holding) => ({ ...holding, flags: {} }))),
      ...files.map(({ path, what }) => [`\`${path}\``, what] as const),
      ...(folders.length === 0
        ? []
        : [
            [
              quotedList(folders),
              "its own folders: `estate.json` says what it owns; `api-servers.json`, of programs with a client, the last known API servers",
            ] as const,
          ]),
      ...objects.flatMap((section) => section.rows.map(([object = "", what = ""]) => [object, what] as const)),
    ];
    return rows.map(([mark, what]) => [mark, `\`${program.name}\``, what]);
  });
}
