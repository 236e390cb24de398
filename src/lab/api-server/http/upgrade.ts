import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { connect as connectTls } from "node:tls";
import { describeError } from "#base/errors";
import { ApiError, badRequest } from "../errors.ts";
import { asString, at } from "../object/json.ts";
import { admit } from "./admit.ts";
import { execTarget, type KubeletAccess, type KubeletPlace, kubeletOf } from "./kubelet-request.ts";
import type { ServerState } from "./state.ts";

/** Headers of the handshake, which are between client and kubelet (RFC 6455 section 4.1). */
const PASSED = ["upgrade", "sec-websocket-key", "sec-websocket-version", "sec-websocket-protocol"] as const;

/** Answers a request to change the protocol: `pods/exec` is relayed to the pod's kubelet. Never throws. */
export async function handleUpgrade(
  state: ServerState,
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
): Promise<void> {
  socket.on("error", () => socket.destroy());
  state.upgraded.add(socket);
  socket.once("close", () => state.upgraded.delete(socket));
  try {
    const kubelet = await openKubelet(state, request);
    kubelet.on("error", () => socket.destroy());
    kubelet.once("close", () => socket.destroy());
    socket.once("close", () => kubelet.destroy());
    // The client may have disconnected during the dial.
    if (socket.destroyed) kubelet.destroy();
    if (head.length > 0) kubelet.write(head);
    kubelet.pipe(socket).pipe(kubelet);
  } catch (error) {
    const known = error instanceof ApiError ? error : new ApiError("InternalError", describeError(error));
    if (known !== error) state.log.error("an upgrade failed", { url: request.url, error: describeError(error) });
    refuse(socket, known);
  }
}

/** Sends the request to the kubelet; its answer is relayed to the client. Rejects with ApiError. */
async function openKubelet(state: ServerState, request: IncomingMessage): Promise<Duplex> {
  const { parsed, url } = admit(state, request);
  const { resource, subresource = "", namespace = "", name = "" } = parsed ?? {};
  if (resource?.group !== "" || resource.kind !== "Pod" || subresource !== "exec") {
    throw badRequest(`cannot change the protocol of ${url.pathname}: only pods/exec is served so`);
  }
  if (state.kubelets === undefined) throw notReached();
  const pod = state.objects.get(resource, namespace, name).object;
  const target = execTarget(pod, url.searchParams);
  // This comes last: kubectl tries SPDY after any failure, and shows only the error of SPDY.
  if (request.headers.upgrade?.toLowerCase() !== "websocket") {
    throw badRequest(
      `cannot exec over ${request.headers.upgrade}: this server speaks WebSockets, as kubectl 1.31 and newer does`,
    );
  }
  const nodes = state.registry.find("", "v1", "nodes");
  if (nodes === undefined) throw new Error("Nodes are always served");
  const place = kubeletOf(state.objects.get(nodes, "", asString(at(pod, "spec", "nodeName"))).object);
  const kubelet = await connect(state.kubelets, place);
  const headers = PASSED.flatMap((header) => {
    const value = request.headers[header];
    return value === undefined ? [] : [`${header}: ${value}`];
  });
  kubelet.write(
    `GET ${target} HTTP/1.1\r\nHost: ${place.host}\r\nConnection: Upgrade\r\n${headers.join("\r\n")}\r\n\r\n`,
  );
  return kubelet;
}

/** The error of a server without access to its nodes. */
export function notReached(): ApiError {
  return new ApiError("NotImplemented", "pods/exec is not served: this API server has no access to its nodes");
}

async function connect({ connect: open, tls }: KubeletAccess, place: KubeletPlace): Promise<Duplex> {
  const failed = (error: unknown): ApiError => {
    const where = `${place.host}:${place.port}`;
    return new ApiError("InternalError", `error dialing backend: ${where}: ${describeError(error)}`, { cause: error });
  };
  const plain = await open(place).catch((error: unknown) => Promise.reject(failed(error)));
  const { promise, resolve, reject } = Promise.withResolvers<Duplex>();
  const secured = connectTls({ ...tls, socket: plain, host: place.host }, () => resolve(secured));
  secured.once("error", (error) => reject(failed(error)));
  return promise;
}

function refuse(socket: Duplex, error: ApiError): void {
  const body = JSON.stringify(error.toStatus());
  const head = [
    `HTTP/1.1 ${error.httpStatus} ${error.code}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}
