import { connect, type Socket } from "node:net";
import { type AbortOptions, Deferred, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { OpenFlowError } from "./errors.ts";
import {
  decodeCount,
  decodeMessage,
  encodeCountRequest,
  encodeMessage,
  type OpenFlowMessage,
  TYPE,
} from "./messages.ts";

/** The limit of the time that a switch may take. */
interface CountFlowsOptions extends AbortOptions {
  /** In milliseconds. Default 5000. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 5000;
const HELLO_XID = 1;
const COUNT_XID = 2;

/**
 * The number of flows of a bridge, in all tables that others may see, by its management socket (`BRIDGE.mgmt` beside the socket of Open
 * vSwitch's database). Rejects with {@link OpenFlowError}, and with the signal's reason.
 */
export async function countFlows(
  { clock }: { readonly clock: Clock },
  path: string,
  { timeoutMs = DEFAULT_TIMEOUT_MS, signal }: CountFlowsOptions = {},
): Promise<number> {
  signal?.throwIfAborted();
  const socket = connect(path);
  const count = new Deferred<number>();
  const cancel = clock.after(timeoutMs, () =>
    count.reject(new OpenFlowError("timeout", `the switch has not answered at ${path} for ${timeoutMs} ms`)),
  );
  let code: "unreachable" | "closed" = "unreachable";
  socket.once("connect", () => {
    code = "closed";
  });
  socket.on("error", (cause) =>
    count.reject(new OpenFlowError(code, `cannot ask the switch at ${path}: ${cause.message}`, { cause })),
  );
  socket.once("close", () => count.reject(new OpenFlowError("closed", `the switch has closed ${path}`)));
  socket.write(encodeMessage({ type: TYPE.hello, xid: HELLO_XID }));
  let bytes = Buffer.alloc(0);
  socket.on("data", (chunk: Buffer) => {
    try {
      bytes = Buffer.concat([bytes, chunk]);
      for (let next = decodeMessage(bytes); next !== undefined; next = decodeMessage(bytes)) {
        bytes = bytes.subarray(next.length);
        const found = answer(socket, next.message);
        if (found !== undefined) count.resolve(found);
      }
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      count.reject(error);
    }
  });
  try {
    return await unlessAborted(count.promise, { signal });
  } finally {
    cancel();
    socket.destroy();
  }
}

/** Goes on with a message of the switch; returns the number of flows once it is told. */
function answer(socket: Socket, message: OpenFlowMessage): number | undefined {
  const { type, xid, body } = message;
  if (type === TYPE.hello) socket.write(encodeCountRequest(COUNT_XID));
  else if (type === TYPE.echoRequest) socket.write(encodeMessage({ type: TYPE.echoReply, xid, body }));
  // An error of another version has the hello's id.
  else if (xid === COUNT_XID || type === TYPE.error) return decodeCount(message);
  return undefined;
}
