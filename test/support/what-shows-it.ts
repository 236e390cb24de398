/**
 * Tables "What shows it" in design pages: each row names a claim, a file and a test, so that a reader finds the test.
 *
 * Owns: reading them, and checking that the tests exist. Does not know: the claims.
 *
 * ```ts
 * const { sections, missing } = claimsOf("docs/design/tunnel.md");
 * assert.deepEqual(missing, []);
 * ```
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");
const ROW = /^\| ([A-Z]\d*) \| (.+) \| `(.+)` \| (.+) \|$/gm;

/** The claims of a page. */
export interface Claims {
  /** First column: the section of the specification of a claim. */
  readonly sections: ReadonlySet<string>;
  /** One line for each claim whose file or test does not exist. */
  readonly missing: readonly string[];
}

/** Reads the table of a page; the path is from the root of the checkout. */
export function claimsOf(page: string): Claims {
  const rows = [...readFileSync(join(root, page), "utf8").matchAll(ROW)];
  const missing = rows.flatMap(([, , claim = "", file = "", name = ""]) => {
    const path = join(root, file);
    const isThere = existsSync(path) && readFileSync(path, "utf8").includes(name);
    return isThere ? [] : [`${claim}: no "${name}" in ${file}`];
  });
  return { sections: new Set(rows.map(([, section = ""]) => section)), missing };
}
