import { existsSync } from "node:fs";
import { canonicalSocket, isServed, SERVED_SOCKETS, servedSockets } from "#base/served-sockets";
import { CniCode, CniError } from "#wire/cni";
import type { CallCoild } from "../../shared/cni-plugin/index.ts";

/** Which sockets count. */
export interface ServedBy {
  /** The daemon, as its mark names it. */
  readonly kind: string;
  /** The socket that needs no mark. */
  readonly usual: string;
  /** The folder of the marks. Default: that of this node. */
  readonly folder?: string;
}

/**
 * Calls only a socket that the node's own daemon serves: who writes a configuration may be a tenant (Multus), and this process is root. Others are refused with
 * code 7 ({@link CniError}). A DEL is never refused: nothing was made by another socket, so it asks the daemon itself, at the usual socket if it is there: marks of other starts may be left.
 */
export function onlyServed(call: CallCoild, { kind, usual, folder = SERVED_SOCKETS }: ServedBy): CallCoild {
  const daemon = { kind, folder };
  return async (socket, request) => {
    if (canonicalSocket(socket) === usual || isServed(socket, daemon)) return await call(socket, request);
    if (request.method === "Del")
      return await call(existsSync(usual) ? usual : (servedSockets(daemon)[0] ?? usual), request);
    throw new CniError(
      CniCode.invalidConfig,
      `network configuration: socket: ${JSON.stringify(socket.slice(0, 200))} is of no ${kind} of this node: leave the key out, or start ${kind} with --socket=${socket.slice(0, 200)} (${folder} has those that are served)`,
    );
  };
}
