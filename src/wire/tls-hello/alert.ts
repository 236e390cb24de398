/** The reason why a connection ends before its handshake (RFC 8446 section 6, RFC 6066 section 3). */
const DESCRIPTIONS = { internal_error: 80, unrecognized_name: 112 } as const;

/** The alerts that can be sent without keys. */
export type PlainAlert = keyof typeof DESCRIPTIONS;

const RECORD_ALERT = 21;
const LEVEL_FATAL = 2;

/** The record of a fatal alert in answer to a ClientHello, so that the client can log the reason. */
export function encodeFatalAlert(description: PlainAlert): Uint8Array {
  return Uint8Array.of(RECORD_ALERT, 3, 3, 0, 2, LEVEL_FATAL, DESCRIPTIONS[description]);
}
