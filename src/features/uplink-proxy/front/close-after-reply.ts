import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";

/** The time that a refused client may take to read the answer, in milliseconds. */
const LINGER_MS = 500;

/** Sends the last answer and closes when the client has closed, or shortly after: a close with unread bytes could discard the answer. */
export function closeAfterReply(client: ByteStream, bytes: Uint8Array, clock: Clock): void {
  if (client.destroyed) return;
  const cancel = clock.after(LINGER_MS, () => client.destroy());
  client.once("close", cancel);
  client.end(bytes);
  client.on("data", () => undefined);
  client.resume();
}
