import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { describeError } from "#base/errors";

/** A certificate and its key, PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/**
 * `tls.crt` and `tls.key` of a folder that others rewrite (secret volumes swap symlinks, docs/spec/pod-network.md#2.6). Read lazily, read
 * again when a modification time changes; a new pair that is broken leaves the old one in use.
 */
export class CertificateFiles {
  readonly #certPath: string;
  readonly #keyPath: string;
  readonly #onChange: (event: { readonly loaded: true } | { readonly loaded: false; readonly why: string }) => void;
  #stamp = "";
  #pair: KeyPair | undefined;

  /** `onChange` is called when a new pair was loaded, and once for each state of the files that is broken. */
  constructor(
    directory: string,
    onChange: (event: { readonly loaded: true } | { readonly loaded: false; readonly why: string }) => void = () =>
      undefined,
  ) {
    this.#certPath = join(directory, "tls.crt");
    this.#keyPath = join(directory, "tls.key");
    this.#onChange = onChange;
  }

  /** The pair to serve now; `undefined` while there never was a good one. Synchronous: it runs as a connection comes in. */
  current(): KeyPair | undefined {
    const stamp = this.#look();
    if (stamp === this.#stamp) return this.#pair;
    this.#stamp = stamp;
    try {
      const pair = { cert: readFileSync(this.#certPath, "utf8"), key: readFileSync(this.#keyPath, "utf8") };
      // Throws for what is no certificate, and for a key that is another's.
      createSecureContext(pair);
      this.#pair = pair;
      this.#onChange({ loaded: true });
    } catch (error) {
      // Files and OpenSSL fail in many ways; each means the same: keep what works until the files change again.
      this.#onChange({ loaded: false, why: `${this.#certPath}: ${describeError(error)}` });
    }
    return this.#pair;
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
