import { on, once } from "node:events";
import type { ServerHttp2Stream } from "node:http2";
import { frameMessage, GrpcDeframer, GrpcWireError } from "#wire/grpc";

/** The maximum size of a conversation's message, in bytes; at any time only one message is in memory, and the chunk that was read last. */
export const MAX_CONVERSATION_MESSAGE_BYTES = 64 * 1024;

/**
 * Serves a bidirectional stream: each message gets one answer, in order, until the caller has ended its side. The next message is read
 * after the previous answer was written. Rejects with the signal's reason, `GrpcWireError`, or what `answer` rejects with; answers may have
 * been sent by then. The signal must abort when the stream fails or closes.
 */
export async function converse(
  stream: ServerHttp2Stream,
  answer: (request: Uint8Array) => Promise<Uint8Array>,
  options: { readonly headers: Readonly<Record<string, string | number>>; readonly signal: AbortSignal },
): Promise<void> {
  const { headers, signal } = options;
  for await (const request of messages(stream, signal)) {
    const reply = frameMessage(await answer(request));
    signal.throwIfAborted();
    if (!stream.headersSent) stream.respond(headers, { waitForTrailers: true });
    if (!stream.write(reply)) await drained(stream, signal);
  }
}

async function* messages(stream: ServerHttp2Stream, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  let ready: Uint8Array[] = [];
  const deframer = new GrpcDeframer({
    maxBytes: MAX_CONVERSATION_MESSAGE_BYTES,
    onMessage: (pieces) => ready.push(Buffer.concat(pieces)),
  });
  for await (const chunk of chunks(stream, signal)) {
    deframer.push(chunk);
    yield* ready;
    ready = [];
  }
  if (!deframer.isIdle)
    throw new GrpcWireError("malformed", "the caller's stream ends in the middle of a gRPC message");
}

/** Reads chunks. Unlike the stream's own iterator, this one leaves the stream open, because the status must still be sent. */
async function* chunks(stream: ServerHttp2Stream, signal: AbortSignal): AsyncGenerator<Buffer> {
  try {
    for await (const _event of on(stream, "readable", { close: ["end"], signal })) {
      for (let chunk: unknown = stream.read(); chunk !== null; chunk = stream.read()) yield chunk as Buffer;
    }
  } catch (error) {
    signal.throwIfAborted(); // throws the signal's reason; `on` would throw its own AbortError
    throw error;
  }
}

async function drained(stream: ServerHttp2Stream, signal: AbortSignal): Promise<void> {
  try {
    await once(stream, "drain", { signal });
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}
