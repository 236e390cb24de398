/**
 * Builds the programs of a release from Git into .state/releases/VERSION, and prints that folder. What is built already stays.
 *
 *     node tools/release.ts [VERSION]     without VERSION: the newest release of docs/releases.md
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildRelease, chooseRelease, parseReleases, ReleaseError } from "./releases.ts";

const root = join(import.meta.dirname, "..");
const say = (text: string): void => void process.stderr.write(`${text}\n`);
try {
  const releases = parseReleases(readFileSync(join(root, "docs/releases.md"), "utf8"));
  console.log(buildRelease(root, chooseRelease(releases, process.argv[2]), say));
} catch (error) {
  if (!(error instanceof ReleaseError)) throw error;
  say(`isthmus: ${error.message}`);
  process.exitCode = 1;
}
