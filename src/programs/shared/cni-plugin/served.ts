/** The time after its last mark for which a daemon counts as running, in milliseconds: the longest replacement of its pod, with the pull of an image. */
export const TOLERANCE_MS = 60_000;

/** The file beside a daemon's socket whose time of change is the last time at which it could serve an ADD. A reboot takes it away, with /run. */
export function servedPath(socket: string): string {
  return `${socket}.served`;
}

/**
 * Returns true if the daemon of a socket could serve at most {@link TOLERANCE_MS} ago, by the machine's clock; false where that is not known. A time in the future,
 * of a clock that was set back, counts up to the same distance.
 */
export function servedLately(socket: string, nowMs: number): boolean {
  try {
    // The module is loaded only when it is needed; a static import would load it at every start of the executable.
    const { mtimeMs } = process.getBuiltinModule("node:fs").statSync(servedPath(socket));
    return Math.abs(nowMs - mtimeMs) <= TOLERANCE_MS;
  } catch (error) {
    if (error instanceof Error && "code" in error) return false;
    throw error;
  }
}
