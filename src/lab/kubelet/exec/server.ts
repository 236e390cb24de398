import { once } from "node:events";
import { type IncomingMessage, STATUS_CODES } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { EXEC_PROTOCOLS, ExecError, type ExecErrorCode, type ExecProtocol } from "./channels.ts";
import type { ExecPlace } from "./command.ts";
import { type ExecRequest, parseExecRequest } from "./request.ts";
import { runExec } from "./session.ts";

/** The largest message of a client, in bytes. */
const MAX_MESSAGE_BYTES = 4 << 20;
/** Maximum number of commands at the same time. */
const MAX_SESSIONS = 100;

const HTTP_STATUS: Readonly<Record<ExecErrorCode, number>> = {
  "bad-request": 400,
  "bad-message": 400,
  "not-found": 404,
  failed: 503,
};

/** The listeners, certificates and pods of a kubelet. */
export interface ExecServerOptions {
  /** Sockets that listen already, made in the node's namespace. */
  readonly fds: readonly number[];
  /** PEM: the server's certificate, and the authority of clients. A client without a certificate of it is refused. */
  readonly tls: { readonly cert: string; readonly key: string; readonly ca: string };
  /** The namespace and environment of a running container; `undefined` if it does not run. */
  readonly placeOf: (request: Pick<ExecRequest, "namespace" | "pod" | "container">) => ExecPlace | undefined;
  readonly log: Logger;
}

/** Serves `/exec` of a kubelet over WebSockets. Disposing ends it with all commands. */
export async function serveExec(options: ExecServerOptions): Promise<AsyncDisposable> {
  const { fds, tls, log } = options;
  const sockets = new Set<Duplex>();
  const webSockets = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
    handleProtocols: (offered) => EXEC_PROTOCOLS.find((one) => offered.has(one)) ?? false,
  });
  const onUpgrade = (message: IncomingMessage, socket: Duplex, head: Buffer): void => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    try {
      const request = judge(message, options, webSockets.clients.size);
      webSockets.handleUpgrade(message, socket, head, (webSocket) => {
        webSocket.on("error", (error) =>
          log.warn("the client of a command closed the connection", { reason: error.message }),
        );
        const { namespace, pod, command } = request;
        log.info("command started", { pod: `${namespace}/${pod}`, command: command[0] });
        const placeNow = (): ExecPlace | undefined => options.placeOf(request);
        void runExec(webSocket, webSocket.protocol as ExecProtocol, placeNow, request);
      });
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      refuse(socket, HTTP_STATUS[error.code], describeError(error));
    }
  };
  const servers = fds.map(() => createTlsServer({ ...tls, requestCert: true, rejectUnauthorized: true }));
  for (const [at, server] of servers.entries()) {
    server.on("secureConnection", (socket: Socket) => {
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket));
    });
    server.on("upgrade", onUpgrade);
    server.on("request", (_request, response) => {
      response.writeHead(400, { "content-type": "text/plain", connection: "close" }).end("Upgrade request required");
    });
    await once(server.listen({ fd: fds[at] }), "listening");
  }
  return {
    async [Symbol.asyncDispose]() {
      for (const client of webSockets.clients) client.terminate();
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
    },
  };
}

/** Throws {@link ExecError} for a request that cannot be run. */
function judge(message: IncomingMessage, { placeOf }: ExecServerOptions, running: number): ExecRequest {
  const request = parseExecRequest(message.url ?? "");
  const offered = String(message.headers["sec-websocket-protocol"] ?? "")
    .split(",")
    .map((one) => one.trim());
  if (!EXEC_PROTOCOLS.some((one) => offered.includes(one))) {
    throw new ExecError(
      "bad-request",
      `cannot run a command for ${message.headers.upgrade} with ${JSON.stringify(offered)}: use one of ${EXEC_PROTOCOLS.join(", ")}`,
    );
  }
  if (running >= MAX_SESSIONS) throw new ExecError("failed", `${MAX_SESSIONS} commands already run`);
  if (placeOf(request) !== undefined) return request;
  const { namespace, pod, container } = request;
  throw new ExecError("not-found", `container not found ("${container}" of pod ${namespace}/${pod} on this node)`);
}

/** Answers a refused upgrade. */
function refuse(socket: Duplex, status: number, text: string): void {
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(text)}`,
    "Connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${text}`);
}
