import { lstatSync, mkdirSync, readdirSync, readFileSync, statfsSync, unlinkSync } from "node:fs";
import { isKernelError, KernelError } from "#kernel/errors";
import { C, close, mount, open, unmount, unshare } from "#kernel/ffi";
import { currentNetNsFd, onReturn } from "./enter.ts";
import { NETNS_DIR, type NetNs } from "./netns.ts";
import { namedPath, openNetNs } from "./open.ts";

/** Magic number of nsfs, as statfs(2) reports it (include/uapi/linux/magic.h). */
const NSFS_MAGIC = 0x6e736673;

/**
 * Makes a namespace and pins it under a name, as `ip netns add` does: a bind mount in /run/netns, which is a shared mount, so that it is
 * visible in other mount namespaces too. Returns a handle, which the caller disposes; the name stays until {@link deleteNetNs}. Throws
 * {@link KernelError} `already-exists` when the name is taken.
 */
export function createNetNs(name: string): NetNs {
  const path = namedPath(name);
  shareNetNsDir();
  close(open(path, C.O_RDONLY | C.O_CREAT | C.O_EXCL, 0o444));
  try {
    onReturn(currentNetNsFd(), () => {
      unshare(C.CLONE_NEWNET);
      mount("/proc/thread-self/ns/net", path, "none", C.MS_BIND);
    });
    return openNetNs({ name });
  } catch (error) {
    deleteNetNs(name);
    throw error;
  }
}

/** Makes a namespace without a name: it ends with its last descriptor, so even a crash leaves nothing behind. */
export function createAnonymousNetNs(): NetNs {
  return onReturn(currentNetNsFd(), () => {
    unshare(C.CLONE_NEWNET);
    return openNetNs("own");
  });
}

/**
 * Removes the name, as `ip netns delete` does. The namespace ends when its last process and descriptor do.
 * Throws {@link KernelError} `not-found` when there is no such name.
 */
export function deleteNetNs(name: string): void {
  const path = namedPath(name);
  try {
    unmount(path, C.MNT_DETACH);
  } catch (error) {
    // EINVAL: a plain file that a killed `create` left, or whose mount is gone. The caller wants it removed.
    if (!isKernelError(error, "invalid")) throw error;
  }
  try {
    unlinkSync(path);
  } catch (cause) {
    throw new KernelError("failed", `Cannot remove ${path}: ${(cause as NodeJS.ErrnoException).code ?? "unknown"}`, {
      cause,
    });
  }
}

/** Names in /run/netns that are really pinned namespaces, sorted; leftover plain files are left out. */
export function listNetNs(): string[] {
  let names: string[];
  try {
    names = readdirSync(NETNS_DIR);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw new KernelError("failed", `Cannot list ${NETNS_DIR}`, { cause: error });
  }
  return names.filter((name) => isPinned(`${NETNS_DIR}/${name}`)).sort();
}

function isPinned(path: string): boolean {
  try {
    return statfsSync(path).type === NSFS_MAGIC;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return false; // deleted after the list was read
    throw new KernelError("failed", `Cannot inspect ${path}`, { cause: error });
  }
}

/** As iproute2's netns_add: make the directory and turn it into a shared mount point of its own, once. */
function shareNetNsDir(): void {
  if (lstatSync(NETNS_DIR, { throwIfNoEntry: false }) === undefined)
    mkdirSync(NETNS_DIR, { recursive: true, mode: 0o755 });
  if (isSharedMount()) return;
  try {
    mount("", NETNS_DIR, "none", C.MS_SHARED | C.MS_REC);
  } catch (error) {
    if (!isKernelError(error, "invalid")) throw error; // EINVAL: not a mount point yet
    mount(NETNS_DIR, NETNS_DIR, "none", C.MS_BIND | C.MS_REC);
    mount("", NETNS_DIR, "none", C.MS_SHARED | C.MS_REC);
  }
}

/** proc_pid_mountinfo(5): field 5 is the mount point; optional fields from 7 name the peer group. */
function isSharedMount(): boolean {
  return readFileSync("/proc/thread-self/mountinfo", "utf8")
    .split("\n")
    .some((line) => line.split(" ")[4] === NETNS_DIR && / shared:\d+ /.test(line));
}
