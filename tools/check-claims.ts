/**
 * Fails on a claim of a page ("What shows it", `claims.ts`) whose test does not exist, and on a section without a claim.
 *
 *     node tools/check-claims.ts
 *
 * Every page under `docs` with such a table is in {@link SECTIONS}, with all sections that it must have.
 */
import "./require-node.ts";
import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { claimsOf, sectionFaults } from "./claims.ts";

const root = join(import.meta.dirname, "..");

/** `numbered("U", 1, 3)`: U1, U2, U3. */
function numbered(letter: string, first: number, last: number): string[] {
  return Array.from({ length: last - first + 1 }, (_, at) => `${letter}${first + at}`);
}

/** The sections of each page: of its specification, or of its specification's list of tests; X: claims beyond these. */
const SECTIONS: Readonly<Record<string, readonly string[]>> = {
  "docs/design/egress.md": "U3 U13 U16 U17 U18 U19 U20 U21 E11 E12 E13 E14 E15 D11 D12 X".split(" "),
  "docs/design/manifests.md": ["X"],
  "docs/design/migrator.md": numbered("M", 1, 14),
  // The plan of tests has no row T10 and no row T47.
  "docs/design/nics.md": [...numbered("T", 1, 9), ...numbered("T", 11, 46), ...numbered("T", 48, 53), "X"],
  // D11 and D12 are on the page of egress.
  "docs/design/pod-network.md": [
    ...numbered("U", 1, 15),
    ...numbered("E", 1, 10),
    ...numbered("D", 1, 10),
    ...numbered("D", 13, 16),
  ],
  "docs/design/service-proxy.md": [...numbered("H", 1, 13), ...numbered("S", 1, 26), ...numbered("R", 1, 10)],
  "docs/design/source-guard.md": numbered("G", 1, 7),
  "docs/design/status-and-doctor.md": ["A", "B"],
  "docs/design/tunnel.md": [..."ABCDEFGH"],
  // By attacker: a pod, a tenant, a node, a local user, a stranger.
  "docs/security.md": [
    ...numbered("P", 1, 10),
    ...numbered("T", 1, 15),
    ...numbered("N", 1, 3),
    ...numbered("L", 1, 8),
    ...numbered("S", 1, 22),
  ],
};

/** The faults of all pages, one line each. */
export function claimFaults(): readonly string[] {
  const texts = new Map<string, string | undefined>();
  const textOf = (file: string): string | undefined => {
    if (!texts.has(file)) {
      const path = join(root, file);
      texts.set(file, existsSync(path) ? readFileSync(path, "utf8") : undefined);
    }
    return texts.get(file);
  };
  return globSync("docs/**/*.md", { cwd: root })
    .sort()
    .flatMap((page) => {
      const { sections, faults } = claimsOf(textOf(page) ?? "", textOf);
      const expected = SECTIONS[page];
      if (expected === undefined && sections.size === 0) return [];
      return [...faults, ...sectionFaults(sections, new Set(expected))].map((fault) => `${page}: ${fault}`);
    });
}

if (import.meta.main) {
  const faults = claimFaults();
  for (const fault of faults) console.error(fault);
  process.exitCode = faults.length === 0 ? 0 : 1;
}
