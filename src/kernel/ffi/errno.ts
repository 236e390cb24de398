const EINTR = 4;
/**
 * ENOENT, ESRCH, ENOEXEC, ECHILD, EEXIST, ENOTDIR, ENOTTY: no call of a connected socket, and no accept, fails with these. Then V8 has made other system calls
 * between the call and the reading of errno (garbage collection, loading code), and a repeated call returns the right errno. connect(2) to the path of a
 * UNIX socket can fail with ENOENT or ENOTDIR; its repeated calls return the same.
 */
const FOREIGN: ReadonlySet<number> = new Set([2, 3, 8, 10, 17, 20, 25]);
/** The maximum number of tries while errno is one of {@link FOREIGN}; then it counts as the call's errno. */
const MAX_TRIES = 3;

/** Returns true if a call that failed with `errno` must be repeated: it was interrupted, or the errno is of another call. */
export function isMoot(errno: number, tries: number): boolean {
  return errno === EINTR || (tries < MAX_TRIES && FOREIGN.has(errno));
}
