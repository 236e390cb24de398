import { createServer } from "node:net";
import { getHeapSnapshot } from "node:v8";
import { systemClock } from "#base/clock";
import { stringFlag } from "#base/config";
import { Health } from "#base/health";
import type { Logger } from "#base/log";
import { claimSocketPath, keepSocket, listenOnPath } from "#base/unix-socket";
import { answerByPath, HttpEndpoint, SOCKET_OPTIONS } from "#wire/http-endpoint";
import { attachment } from "./profiling.ts";

/** The user of the program alone may connect. */
const UMASK = 0o177;

/** `--heap-snapshot-socket`, of programs with profiles. */
export const heapSnapshotFlag = {
  heapSnapshotSocket: stringFlag(
    "heap-snapshot-socket",
    "",
    "UNIX socket of mode 0600 that serves /heap.heapsnapshot: all that the program holds in memory, tokens and keys among it; empty: none",
    "PATH",
  ),
};

/**
 * Serves `/heap.heapsnapshot` on a UNIX socket of mode 0600 until disposed; the process stands still while a snapshot is made. An empty path: nothing. Rejects
 * with `SocketPathError` if the path cannot be used.
 */
export async function serveHeapSnapshots(
  { log, onBug }: { readonly log: Logger; readonly onBug: (error: unknown) => void },
  { path }: { readonly path: string },
): Promise<AsyncDisposable> {
  await using opened = new AsyncDisposableStack();
  if (path === "") return opened.move();
  const routes = { "/heap.heapsnapshot": () => attachment("heap.heapsnapshot", getHeapSnapshot()) };
  const endpoint = opened.use(
    new HttpEndpoint<undefined>(
      { answer: (request) => answerByPath(routes, request), onBug, log, clock: systemClock },
      { maxConnections: 2 },
    ),
  );
  const serve = async (): Promise<AsyncDisposable> => {
    await claimSocketPath(path, { deleteExisting: true });
    const server = createServer(SOCKET_OPTIONS, (socket) => endpoint.accept(socket, undefined));
    const listening = await listenOnPath(server, path, { umask: UMASK });
    return {
      async [Symbol.asyncDispose]() {
        listening.close();
      },
    };
  };
  // Nothing but snapshots needs the socket: its state is logged.
  const health = new Health({ log }).part("heap-snapshot-socket");
  opened.use(await keepSocket(serve, { path, health, log, clock: systemClock, onBug }));
  log.warn("who can open the socket reads all that this program holds in memory", { socket: path });
  return opened.move();
}
