/**
 * Cgroups for container runtimes, and those that they leave behind.
 *
 * Owns: making and removing them. Does not know: the programs that made them.
 *
 * ```ts
 * await removeCgroups("/isthmus-test");
 * ```
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "#test/lab";

/**
 * Removes the cgroups that containers left below a cgroup, in each hierarchy, the deepest first: the kernel keeps empty cgroups until a
 * program removes them.
 */
export async function removeCgroups(parent: string): Promise<void> {
  const ours = hierarchies()
    .map((place) => join(place, parent))
    .filter((place) => existsSync(place));
  await until("the containers' cgroups are removed", () => ours.every(tryRemove));
}

/** Returns true if a cgroup is there in any hierarchy. */
export function hasCgroup(path: string): boolean {
  return hierarchies().some((place) => existsSync(join(place, path)));
}

/** Makes a cgroup of the first level in each hierarchy, in which processes can be. */
export function makeCgroups(parent: string): void {
  for (const place of hierarchies()) {
    mkdirSync(join(place, parent), { recursive: true });
    // Version 1: without processors and memory of its own a cgroup takes no process.
    for (const file of ["cpuset.cpus", "cpuset.mems"].filter(
      (one) => place.endsWith("cpuset") && existsSync(join(place, one)),
    ))
      writeFileSync(join(place, parent, file), readFileSync(join(place, file)));
  }
}

function hierarchies(): string[] {
  const root = "/sys/fs/cgroup";
  if (existsSync(join(root, "cgroup.controllers"))) return [root];
  return readdirSync(root, { withFileTypes: true })
    .filter((one) => one.isDirectory())
    .map(({ name }) => join(root, name));
}

/** Returns false while a process in it has not ended. */
function tryRemove(cgroup: string): boolean {
  if (!existsSync(cgroup)) return true;
  const inside = readdirSync(cgroup, { withFileTypes: true }).filter((one) => one.isDirectory());
  if (!inside.map(({ name }) => tryRemove(join(cgroup, name))).every(Boolean)) return false;
  try {
    rmdirSync(cgroup);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EBUSY") throw error;
    return false;
  }
}
