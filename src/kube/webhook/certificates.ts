import { X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { describeError } from "#base/errors";

/** A certificate and its key, PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/** A change of what is served: a pair that was loaded, with its end (milliseconds since the epoch), or files that cannot be used. */
export type CertificateEvent =
  | { readonly loaded: true; readonly notAfter: number }
  | { readonly loaded: false; readonly why: string };

/**
 * `tls.crt` and `tls.key` of a folder that other programs rewrite (secret volumes swap symlinks, docs/spec/pod-network.md#2.6). They are
 * read when needed, and again when a modification time changes, or when they could not be read. If a new pair cannot be used, the old pair stays in use.
 */
export class CertificateFiles {
  readonly #certPath: string;
  readonly #keyPath: string;
  readonly #onChange: (event: CertificateEvent) => void;
  #stamp = "";
  /** Why the files could not be used the last time. */
  #fault = "";
  #pair: KeyPair | undefined;
  #given = false;

  /** `onChange` is called when a new pair was loaded, and once for each state of the files that cannot be used. */
  constructor(directory: string, onChange: (event: CertificateEvent) => void = () => undefined) {
    this.#certPath = join(directory, "tls.crt");
    this.#keyPath = join(directory, "tls.key");
    this.#onChange = onChange;
  }

  /** Serves this pair from now on; the files are not read any more. Returns false, and changes nothing, if it cannot be used. */
  give(pair: KeyPair): boolean {
    try {
      this.#load(pair);
    } catch (error) {
      this.#onChange({ loaded: false, why: `the certificate and key given by the program: ${describeError(error)}` });
      return false;
    }
    this.#given = true;
    return true;
  }

  /** The pair to serve now; `undefined` if no pair could be used yet. Synchronous, because it runs when a connection arrives. */
  current(): KeyPair | undefined {
    if (this.#given) return this.#pair;
    try {
      const stamp = this.#look();
      if (stamp === this.#stamp) return this.#pair;
      const pair = { cert: readFileSync(this.#certPath, "utf8"), key: readFileSync(this.#keyPath, "utf8") };
      // Only what was read needs no other look: a read may have failed for want of descriptors.
      this.#stamp = stamp;
      this.#fault = "";
      this.#load(pair);
    } catch (error) {
      // Files and OpenSSL fail in many ways; each means the same: the pair that works is kept.
      const why = `${this.#certPath}: ${describeError(error)}`;
      if (why !== this.#fault) this.#onChange({ loaded: false, why });
      this.#fault = why;
    }
    return this.#pair;
  }

  /** Throws if the text is not a certificate, or if the key belongs to another certificate. */
  #load(pair: KeyPair): void {
    createSecureContext(pair);
    const notAfter = Date.parse(new X509Certificate(pair.cert).validTo);
    this.#pair = pair;
    this.#onChange({ loaded: true, notAfter });
  }

  /** Identifies the state of the files. */
  #look(): string {
    return [this.#certPath, this.#keyPath]
      .map((path) => {
        const stat = statSync(path, { throwIfNoEntry: false });
        return stat === undefined ? "absent" : `${stat.ino}:${stat.mtimeMs}:${stat.size}`;
      })
      .join(" ");
  }
}
