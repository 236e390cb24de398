/** RFC 8446 section 5.1: change_cipher_spec, alert, handshake, application_data. */
const FIRST_TYPE = 20;
const LAST_TYPE = 23;
const HEADER_BYTES = 5;

/**
 * Follows the records of a TLS stream by their lengths, to distinguish an idle connection from one that stalled in the middle of
 * a record: a pooled connection is silent between two records. A stream without TLS always counts as within a record.
 */
export class TlsRecords {
  /** The remaining bytes of the record whose payload is passing. */
  #missing = 0;
  #headerBytes = 0;
  #length = 0;
  #isTls = true;

  /** The stream is within a record, or has no TLS. */
  get isWithinRecord(): boolean {
    return !this.#isTls || this.#missing > 0 || this.#headerBytes > 0;
  }

  /** The stream is TLS, and within a record. */
  get isWithinTlsRecord(): boolean {
    return this.#isTls && this.isWithinRecord;
  }

  push(chunk: Uint8Array): void {
    for (let at = 0; this.#isTls && at < chunk.length; ) {
      if (this.#missing > 0) {
        const taken = Math.min(this.#missing, chunk.length - at);
        this.#missing -= taken;
        at += taken;
      } else {
        this.#takeHeaderByte(chunk[at] ?? 0);
        at += 1;
      }
    }
  }

  #takeHeaderByte(byte: number): void {
    if (this.#headerBytes === 0 && (byte < FIRST_TYPE || byte > LAST_TYPE)) this.#isTls = false;
    this.#length = ((this.#length << 8) | byte) & 0xffff;
    this.#headerBytes += 1;
    if (this.#headerBytes < HEADER_BYTES) return;
    this.#headerBytes = 0;
    this.#missing = this.#length;
  }
}
