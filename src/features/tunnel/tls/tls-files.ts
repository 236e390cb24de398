import { readFileSync, statSync } from "node:fs";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { trustedForClients } from "./authorities.ts";

/** The files are checked at most this often, in milliseconds: there may be thousands of handshakes a second. */
const CHECK_INTERVAL_MS = 1000;

export type TlsFilesErrorCode = "unreadable" | "invalid";

/** The files cannot be used for a TLS server. The message names the file. */
export class TlsFilesError extends ExpectedError<TlsFilesErrorCode> {
  override readonly name = "TlsFilesError";
}

/** Paths of PEM files. */
export interface TlsPaths {
  readonly cert: string;
  readonly key: string;
  /** The authorities that sign clients, roots or not. Absent: clients need no certificate. */
  readonly clientCa: string | undefined;
}

/** The options of a secure context that come from the files. */
export type TlsMaterial = Pick<SecureContextOptions, "cert" | "key" | "ca">;

/**
 * Certificate files that other programs replace at run time: for secret volumes links are swapped, cert-manager renames files. The next
 * handshake uses the new files. If files are invalid, half written or unreadable, this is reported once, the old files stay in use, and the
 * new ones are read again until they can be used.
 */
export class TlsFiles {
  readonly #paths: TlsPaths;
  readonly #clock: Clock;
  readonly #onBroken: (why: string) => void;
  /** The stamp of the files that are in use; absent if newer files could not be used. */
  #stamp: string | undefined;
  /** The last reported text; absent since files could be used. */
  #broken: string | undefined;
  #checkedAt: number;
  #material: TlsMaterial;

  /** Reads the files. Throws {@link TlsFilesError}. */
  constructor(paths: TlsPaths, options: { readonly clock: Clock; readonly onBroken?: (why: string) => void }) {
    this.#paths = paths;
    this.#clock = options.clock;
    this.#onBroken = options.onBroken ?? ((): void => undefined);
    this.#stamp = this.#readStamp();
    this.#checkedAt = this.#clock.monotonic();
    this.#material = this.#read();
  }

  /** The present certificate, key and authorities. */
  get material(): TlsMaterial {
    return this.#material;
  }

  /** Reads changed files again; true if {@link material} has changed. Synchronous and cheap: it is called for each connection. */
  refresh(): boolean {
    const now = this.#clock.monotonic();
    if (now - this.#checkedAt < CHECK_INTERVAL_MS) return false;
    this.#checkedAt = now;
    try {
      const stamp = this.#readStamp();
      if (stamp === this.#stamp) return false;
      this.#material = this.#read();
      this.#stamp = stamp;
      this.#broken = undefined;
      return true;
    } catch (error) {
      if (!(error instanceof TlsFilesError)) throw error;
      // Not all that makes files usable changes their stamp: a free descriptor does not.
      this.#stamp = undefined;
      if (error.message !== this.#broken) this.#onBroken(error.message);
      this.#broken = error.message;
      return false;
    }
  }

  #read(): TlsMaterial {
    const { cert, key, clientCa } = this.#paths;
    const pair = { cert: readPem(cert), key: readPem(key) };
    const authorities = clientCa === undefined ? undefined : trustedForClients(readPem(clientCa));
    // Without one Node refuses every client and reports nothing.
    if (authorities === "")
      throw new TlsFilesError("invalid", `cannot use ${clientCa}: it has no certificate that can be read`);
    try {
      const material = authorities === undefined ? pair : { ...pair, ca: authorities };
      // OpenSSL refuses an invalid certificate, and a key of another certificate.
      createSecureContext(material);
      return material;
    } catch (error) {
      const files = [cert, key, ...(clientCa === undefined ? [] : [clientCa])].join(", ");
      throw new TlsFilesError("invalid", `cannot use ${files}: ${describeError(error)}`, { cause: error });
    }
  }

  /** A text that changes when a file was replaced or rewritten, or has another mode or owner. Throws {@link TlsFilesError}. */
  #readStamp(): string {
    const { cert, key, clientCa } = this.#paths;
    return [cert, key, clientCa].flatMap((path) => (path === undefined ? [] : [stampOf(path)])).join(" ");
  }
}

function stampOf(path: string): string {
  try {
    const { ino, mtimeMs, ctimeMs, size } = statSync(path);
    return `${ino}:${mtimeMs}:${ctimeMs}:${size}`;
  } catch (error) {
    throw new TlsFilesError("unreadable", `cannot read ${path}: ${describeError(error)}`, { cause: error });
  }
}

function readPem(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new TlsFilesError("unreadable", `cannot read ${path}: ${describeError(error)}`, { cause: error });
  }
  // With a CA text that has no certificate Node refuses every client and reports nothing.
  if (!text.includes("-----BEGIN ")) throw new TlsFilesError("invalid", `cannot use ${path}: it has no PEM block`);
  return text;
}
