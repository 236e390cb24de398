import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";

/** A refused client may take so long to read why, milliseconds. */
const LINGER_MS = 500;

/** Sends the last that a client is told, and closes when it has closed or shortly after: closing with unread bytes would take the answer from it. */
export function closeAfterReply(client: ByteStream, bytes: Uint8Array, clock: Clock): void {
  if (client.destroyed) return;
  const cancel = clock.after(LINGER_MS, () => client.destroy());
  client.once("close", cancel);
  client.end(bytes);
  client.on("data", () => undefined);
  client.resume();
}
