/** Frame types, RFC 9113 section 6. */
export const FrameType = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Frame flags, RFC 9113 section 6. */
export const Flag = { endStream: 1, ack: 1, endHeaders: 4, padded: 8, priority: 32 } as const;

/** Settings, RFC 9113 section 6.5.2. */
export const Setting = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
} as const;

/** Error codes, RFC 9113 section 7. */
export const Http2Code = {
  noError: 0,
  protocolError: 1,
  internalError: 2,
  flowControlError: 3,
  settingsTimeout: 4,
  streamClosed: 5,
  frameSizeError: 6,
  refusedStream: 7,
  cancel: 8,
  compressionError: 9,
  connectError: 10,
  enhanceYourCalm: 11,
  inadequateSecurity: 12,
  http11Required: 13,
} as const;

/** The first bytes of every client, RFC 9113 section 3.4. */
export const PREFACE = Uint8Array.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (char) => char.charCodeAt(0));
/** The head of every frame, RFC 9113 section 4.1. */
export const FRAME_HEAD_BYTES = 9;
/** SETTINGS_MAX_FRAME_SIZE: its default and least, and its largest value (RFC 9113 section 6.5.2). */
export const MIN_MAX_FRAME_BYTES = 16_384;
export const MAX_MAX_FRAME_BYTES = 16_777_215;
/** The flow-control window of streams and connections before any SETTINGS or WINDOW_UPDATE (RFC 9113 section 6.9.2). */
export const DEFAULT_WINDOW_BYTES = 65_535;
/** The largest flow-control window (RFC 9113 section 6.9.1), and the largest stream id (section 5.1.1). */
export const MAX_WINDOW_BYTES = 0x7fff_ffff;
export const MAX_STREAM_ID = 0x7fff_ffff;

export const NOTHING: Uint8Array = new Uint8Array(0);

/** The unsigned number of four bytes. The caller has checked that they are there. */
export function uint32At(bytes: Uint8Array, at: number): number {
  return (
    (bytes[at] as number) * 0x100_0000 +
    (((bytes[at + 1] as number) << 16) | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number))
  );
}
