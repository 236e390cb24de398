/** Files that a generator writes: brought up to date, or with `--check` only compared. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";

const ROOT = join(import.meta.dirname, "..");

/**
 * Runs a generator's command line over the files of a folder, by name. `also` finds further faults, after the files. Returns
 * the exit code: 1 when a file differs under `--check` or there are such faults, 2 for a command line that is none.
 */
export async function generate(
  generator: {
    readonly script: string;
    readonly folder: string;
    readonly files: ReadonlyMap<string, string>;
    readonly also?: () => Promise<readonly string[]>;
  },
  args: readonly string[],
): Promise<number> {
  const { script, folder, files } = generator;
  if (args.some((arg) => arg !== "--check")) {
    console.error(`usage: node ${script} [--check]`);
    return 2;
  }
  const check = args.includes("--check");
  const faults: string[] = [];
  await mkdir(folder, { recursive: true });
  for (const [name, text] of files) {
    const path = join(folder, name);
    if ((await stored(path)) === text) continue;
    const shown = relative(ROOT, path);
    if (check) faults.push(`${shown} is not what its sources say; run: node ${script}`);
    else {
      await writeFile(path, text);
      console.log(`wrote ${shown}`);
    }
  }
  faults.push(...((await generator.also?.()) ?? []));
  for (const fault of faults) console.error(fault);
  return faults.length > 0 ? 1 : 0;
}

async function stored(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}
