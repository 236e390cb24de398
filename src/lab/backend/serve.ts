import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { sleep } from "#base/async";
import { formatBackendAnswer, SLOW_PATH } from "./answer.ts";

const PIECE_MS = 100;
/** The longest answer that a client may request, in milliseconds. */
const MAX_SLOW_MS = 60_000;

/**
 * Serves on a port of every address until the signal aborts. Then it still accepts connections for `lingerMs`, because senders have not
 * been notified yet, and ends when every answer is complete. Rejects when it cannot listen.
 */
export async function serveBackend(
  { port, lingerMs }: { readonly port: number; readonly lingerMs: number },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const server = createServer((request, response) => {
    void answer(request, response);
  });
  await once(server.listen(port), "listening");
  if (!signal.aborted) await once(signal, "abort");
  await sleep(lingerMs);
  const closed = once(server, "close");
  server.close();
  await closed;
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { localAddress = "", remoteAddress = "" } = request.socket;
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://backend");
  response.writeHead(200, { connection: "close" });
  response.write(formatBackendAnswer(localAddress, remoteAddress));
  const wanted = pathname === SLOW_PATH ? Number(searchParams.get("ms") ?? 0) : 0;
  const untilMs = performance.now() + (Number.isFinite(wanted) ? Math.min(wanted, MAX_SLOW_MS) : 0);
  while (performance.now() < untilMs && !response.destroyed) {
    await sleep(PIECE_MS);
    response.write(".");
  }
  response.end();
}
