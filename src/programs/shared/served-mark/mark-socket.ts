import { FileError } from "#base/file";
import type { Logger } from "#base/log";
import { canonicalSocket, markServed } from "#base/served-sockets";

/** Has the CNI executables of this node take a socket other than the `usual` one. Without the mark they refuse it, which is logged. */
export function markSocket(
  socket: string,
  { kind, usual, log }: { readonly kind: string; readonly usual: string; readonly log: Logger },
): void {
  if (canonicalSocket(socket) === usual) return;
  try {
    markServed(socket, { kind });
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    log.error("CNI executables will refuse this socket: it cannot be marked as served", {
      socket,
      error: error.message,
    });
  }
}
