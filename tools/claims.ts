/**
 * Tables "What shows it" of pages: each row has a section, a claim, a file and a part of a test's name, so that a reader finds the test.
 *
 * ```ts
 * const { sections, faults } = claimsOf(page, (file) => readFileSync(file, "utf8"));
 * ```
 */

const ROW = /^\| (?<section>[A-Z]\d*) \| (?<claim>[^|]+) \| `(?<file>[^`|]+)` \| (?<name>[^|]+) \|$/;
/** A row of such a table without a section: the file has a folder. */
const NAMELESS = /^\| [^|]+ \| `[^`|]+\/[^`|]+` \| [^|]+ \|$/;

/** The claims of a page. */
export interface Claims {
  /** The first column: the sections of the specification, or the rows of its list of tests. */
  readonly sections: ReadonlySet<string>;
  /** One line for each row whose file or test does not exist, and for each row without a section. */
  readonly faults: readonly string[];
}

/** Pure: the claims of a page. `textOf` returns the text of a file, by its path from the root; `undefined`: there is none. */
export function claimsOf(page: string, textOf: (file: string) => string | undefined): Claims {
  const sections = new Set<string>();
  const faults: string[] = [];
  for (const line of page.split("\n")) {
    const { section, claim = "", file = "", name = "" } = ROW.exec(line)?.groups ?? {};
    if (section !== undefined) {
      sections.add(section);
      if (textOf(file)?.includes(name) !== true) faults.push(`${claim}: no "${name}" in ${file}`);
    } else if (NAMELESS.test(line)) faults.push(`a row without the name of its section: ${line}`);
  }
  return { sections, faults };
}

/** Pure: the faults of a page whose sections must be these. */
export function sectionFaults(sections: ReadonlySet<string>, expected: ReadonlySet<string>): readonly string[] {
  return [
    ...[...expected].filter((one) => !sections.has(one)).map((one) => `no row of section ${one}`),
    ...[...sections]
      .filter((one) => !expected.has(one))
      .map((one) => `${one} is no section of this page; add it in tools/check-claims.ts`),
  ];
}
