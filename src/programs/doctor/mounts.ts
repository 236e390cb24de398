/** Whether the file system of a path is mounted read-only, by the text of /proc/self/mountinfo (proc_pid_mountinfo(5)). Pure. */
export function isReadOnly(mountinfo: string, path: string): boolean {
  let found: { readonly point: string; readonly isReadOnly: boolean } | undefined;
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
    found = { point, isReadOnly: [options, superOptions].some((list) => list.split(",").includes("ro")) };
  }
  return found?.isReadOnly === true;
}

function isBelow(path: string, point: string): boolean {
  return point === "/" || path === point || path.startsWith(`${point}/`);
}
