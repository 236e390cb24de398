/**
 * Cgroups that container runtimes leave behind.
 *
 * Owns: their removal. Does not know: the programs that made them.
 *
 * ```ts
 * await removeCgroups("/isthmus-test");
 * ```
 */
import { existsSync, readdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { until } from "#test/lab";

/**
 * Removes the cgroups that containers left below a cgroup, in each hierarchy, the deepest first: the kernel keeps empty cgroups until a
 * program removes them.
 */
export async function removeCgroups(parent: string): Promise<void> {
  const root = "/sys/fs/cgroup";
  const places = existsSync(join(root, "cgroup.controllers"))
    ? [root]
    : readdirSync(root).map((one) => join(root, one));
  const ours = places.map((place) => join(place, parent)).filter((place) => existsSync(place));
  await until("the containers' cgroups are removed", () => ours.every(tryRemove));
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
