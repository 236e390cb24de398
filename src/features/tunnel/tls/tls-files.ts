import { readFileSync, statSync } from "node:fs";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { type Clock, systemClock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";

/** How often the files are looked at at most, milliseconds: handshakes may come by the thousand. */
const LOOK_INTERVAL_MS = 1000;

export type TlsFilesErrorCode = "unreadable" | "invalid";

/** Files that make no TLS server. The message names the file. */
export class TlsFilesError extends ExpectedError<TlsFilesErrorCode> {
  override readonly name = "TlsFilesError";
}

/** Paths of PEM files. */
export interface TlsPaths {
  readonly cert: string;
  readonly key: string;
  /** Who may sign clients. Absent: clients are not asked for a certificate. */
  readonly clientCa: string | undefined;
}

/** What of a context the files give. */
export type TlsMaterial = Pick<SecureContextOptions, "cert" | "key" | "ca">;

/**
 * Certificate files that others rewrite while we run: secret volumes swap links, cert-manager renames. New ones serve the next
 * handshake; ones that are broken or half written are told once and change nothing.
 */
export class TlsFiles {
  readonly #paths: TlsPaths;
  readonly #clock: Clock;
  readonly #onBroken: (why: string) => void;
  #stamp: string;
  #lookedAt: number;
  #material: TlsMaterial;

  /** Reads them. Throws {@link TlsFilesError}: a server is not to start with files that do not work. */
  constructor(paths: TlsPaths, options: { readonly clock?: Clock; readonly onBroken?: (why: string) => void } = {}) {
    this.#paths = paths;
    this.#clock = options.clock ?? systemClock;
    this.#onBroken = options.onBroken ?? ((): void => undefined);
    this.#stamp = this.#look();
    this.#lookedAt = this.#clock.monotonic();
    this.#material = this.#read();
  }

  /** What to serve now. */
  get material(): TlsMaterial {
    return this.#material;
  }

  /** Whether {@link material} has just changed. Synchronous, and cheap when called often: it runs as connections come in. */
  refresh(): boolean {
    const now = this.#clock.monotonic();
    if (now - this.#lookedAt < LOOK_INTERVAL_MS) return false;
    this.#lookedAt = now;
    const stamp = this.#look();
    if (stamp === this.#stamp) return false;
    this.#stamp = stamp;
    try {
      this.#material = this.#read();
      return true;
    } catch (error) {
      if (!(error instanceof TlsFilesError)) throw error;
      this.#onBroken(error.message);
      return false;
    }
  }

  #read(): TlsMaterial {
    const { cert, key, clientCa } = this.#paths;
    const material = {
      cert: readPem(cert),
      key: readPem(key),
      ...(clientCa === undefined ? {} : { ca: readPem(clientCa) }),
    };
    try {
      // OpenSSL refuses what is no certificate, and a key that is another's.
      createSecureContext(material);
    } catch (error) {
      const files = [cert, key, ...(clientCa === undefined ? [] : [clientCa])].join(", ");
      throw new TlsFilesError("invalid", `cannot use ${files}: ${describeError(error)}`, { cause: error });
    }
    return material;
  }

  /** What identifies the state of the files. */
  #look(): string {
    const { cert, key, clientCa } = this.#paths;
    return [cert, key, clientCa]
      .flatMap((path) => (path === undefined ? [] : [statSync(path, { throwIfNoEntry: false })]))
      .map((stat) => (stat === undefined ? "absent" : `${stat.ino}:${stat.mtimeMs}:${stat.size}`))
      .join(" ");
  }
}

function readPem(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new TlsFilesError("unreadable", `cannot read ${path}: ${describeError(error)}`, { cause: error });
  }
  // Node takes a CA text without a certificate for "no CA" and lets nobody in, without a word.
  if (!text.includes("-----BEGIN ")) throw new TlsFilesError("invalid", `cannot use ${path}: it holds no PEM block`);
  return text;
}
