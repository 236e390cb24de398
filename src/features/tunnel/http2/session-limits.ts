/** About this number of bytes is handed to the socket at once. */
export const BATCH_BYTES = 256 * 1024;

/** Batches under way. With one, nothing is encrypted while the kernel takes bytes. */
export const MAX_UNDER_WAY = 2;

/** While more bytes besides data wait to be written, the peer is not read: it causes answers and does not read them. */
export const MAX_OWED_BYTES = 256 * 1024;

/** The work that a session may do in one turn of the event loop, in frames (`Http2Connection.receive`): half a MiB of data, or some tenths of a millisecond of frames that carry little. */
export const TURN_WORK = 128;

/** PINGs of this side that wait for their answers. */
export const MAX_PINGS = 10;

/** The time that a peer may take to read the last bytes of a session that has failed, in milliseconds. */
export const LINGER_MS = 1000;

/** Bytes that wait on a stream. The senders stop far below; only the end of a link queues more, at most what the process may buffer. */
export const MAX_QUEUED_BYTES = 1024 * 1024 * 1024;

/** A burst of resets lasts this number of seconds. */
export const RESET_BURST_S = 10;

/** A client that sends nothing for so long, in milliseconds, gets the server's settings: it may wait for them. */
export const GREETING_MS = 50;

/** As the last stream of a GOAWAY: none is refused (RFC 9113 section 6.8). */
export const MAX_STREAM_ID = 0x7fff_ffff;
