import { fstatSync, statfsSync } from "node:fs";
import { runPath } from "#base/file";
import { KernelError } from "#kernel/errors";
import { C, close, open } from "#kernel/ffi";
import { NETNS_DIR, type NetNs, type NetNsRef } from "./netns.ts";

/** linux/magic.h: the file system of namespaces. */
const NSFS_MAGIC = 0x6e736673;

/**
 * Opens a namespace. The caller disposes it. Throws {@link KernelError}: `not-found` if the path does not exist, `invalid` if the file is
 * not a network namespace or the name is invalid.
 */
export function openNetNs(ref: NetNsRef): NetNs {
  const path = pathOf(ref);
  // Not blocking: a FIFO at the path of a namespace would block this process until it has a writer.
  const fd = open(path, C.O_RDONLY | C.O_NONBLOCK);
  try {
    if (statfsSync(`/proc/self/fd/${fd}`).type === NSFS_MAGIC) return handle(fd, path);
    throw new KernelError("invalid", `${path} is not a network namespace`);
  } catch (error) {
    close(fd);
    throw error;
  }
}

/** Makes a handle of an open descriptor, which it then owns. */
function handle(fd: number, path: string): NetNs {
  const stat = fstatSync(fd, { bigint: true });
  let open = true;
  return {
    fd,
    path,
    inode: stat.ino,
    [Symbol.dispose]() {
      if (open) close(fd);
      open = false;
    },
  };
}

/** The path of a named namespace. Throws {@link KernelError} `invalid` for an invalid name. */
export function namedPath(name: string): string {
  if (!/^[^/\0]{1,255}$/.test(name) || name === "." || name === "..") {
    throw new KernelError("invalid", `"${name}" cannot be the name of a network namespace: use a plain file name`);
  }
  return `${NETNS_DIR}/${name}`;
}

function pathOf(ref: NetNsRef): string {
  if (ref === "own") return "/proc/thread-self/ns/net";
  if ("name" in ref) return namedPath(ref.name);
  if ("path" in ref) return runPath(ref.path);
  if (!Number.isInteger(ref.pid) || ref.pid <= 0) {
    throw new KernelError("invalid", `${ref.pid} cannot be a process id: use a positive integer`);
  }
  return `/proc/${ref.pid}/ns/net`;
}
