import { createHash } from "node:crypto";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { Server, Socket } from "node:net";

/** Length of the file of `GET /file`, in bytes. */
export const FILE_BYTES = 4 * 2 ** 20;
/** Header with the client's address that the server sees. */
export const CLIENT_HEADER = "x-client-address";

/**
 * Serves one file over HTTPS and HTTP, with its digest (RFC 9530) and the client's address; `/who` serves only the address. Listens on
 * descriptors. Disposing ends it with all connections.
 */
export function serveFiles(
  tls: { readonly cert: string; readonly key: string },
  fds: { readonly https: readonly number[]; readonly http: readonly number[] },
): AsyncDisposable {
  const file = makeFile(FILE_BYTES);
  const digest = `sha-256=:${createHash("sha256").update(file).digest("base64")}:`;
  const sockets = new Set<Socket>();
  const answer: RequestListener = (request, response) => {
    const client = plain(request.socket.remoteAddress);
    response.setHeader(CLIENT_HEADER, client);
    if (request.url === "/who") response.end(`${client}\n`);
    else if (request.url === "/file") response.writeHead(200, { "repr-digest": digest }).end(file);
    else response.writeHead(404).end("unknown path; the paths are /file and /who\n");
  };
  const listen = (server: Server, fd: number): Server => {
    server.on("connection", (socket: Socket) => {
      sockets.add(socket);
      // A client may disconnect at any time.
      socket.on("error", () => socket.destroy());
      socket.once("close", () => sockets.delete(socket));
    });
    return server.listen({ fd });
  };
  const servers = [
    ...fds.https.map((fd) => listen(createHttpsServer(tls, answer), fd)),
    ...fds.http.map((fd) => listen(createHttpServer(answer), fd)),
  ];
  return {
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise<void>((resolve) => void server.close(() => resolve()))));
    },
  };
}

/** Each 16-bit word is its own position, so that lost and repeated bytes are noticed. */
function makeFile(bytes: number): Buffer {
  const file = Buffer.alloc(bytes);
  for (let at = 0; at + 2 <= bytes; at += 2) file.writeUInt16BE((at / 2) & 0xffff, at);
  return file;
}

function plain(address = ""): string {
  return address.replace(/^::ffff:/, "");
}
