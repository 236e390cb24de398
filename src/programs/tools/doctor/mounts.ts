/** A mount, by proc_pid_mountinfo(5). */
interface Mounted {
  readonly point: string;
  /** The options of this mount, and those of its file system. */
  readonly options: readonly string[];
  readonly ofFileSystem: readonly string[];
}

/**
 * Returns true if the file system of a path is mounted read-only, by the text of /proc/self/mountinfo. In a container the options of a mount are what its pod asks for, so
 * only those of the file system count. Pure.
 */
export function isReadOnly(mountinfo: string, path: string, { isContainer = false } = {}): boolean {
  const found = mountOf(mountinfo, path);
  if (found === undefined) return false;
  return found.ofFileSystem.includes("ro") || (!isContainer && found.options.includes("ro"));
}

/** Returns true if a path of a container is the node's: it, or a folder above it, is mounted there. Pure. */
export function isMounted(mountinfo: string, path: string): boolean {
  const found = mountOf(mountinfo, path);
  return found !== undefined && found.point !== "/";
}

/** The mount that a path is on: the last one of the longest mount point. */
function mountOf(mountinfo: string, path: string): Mounted | undefined {
  let found: Mounted | undefined;
  for (const line of mountinfo.split("\n")) {
    const [head = "", tail = ""] = line.split(" - ");
    const [, , , , raw = "", options = ""] = head.split(" ");
    const point = raw.replaceAll(/\\([0-7]{3})/g, (_all, digits: string) =>
      String.fromCharCode(Number.parseInt(digits, 8)),
    );
    if (point === "" || !isBelow(path, point)) continue;
    // Of mounts at the same point the last one is seen.
    if (found !== undefined && found.point.length > point.length) continue;
    const superOptions = tail.split(" ")[2] ?? "";
    found = { point, options: options.split(","), ofFileSystem: superOptions.split(",") };
  }
  return found;
}

function isBelow(path: string, point: string): boolean {
  return point === "/" || path === point || path.startsWith(`${point}/`);
}
