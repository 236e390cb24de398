import { X509Certificate } from "node:crypto";
import { join } from "node:path";
import { createSecureContext } from "node:tls";
import { describeError } from "#base/errors";
import { FollowedFiles } from "./followed-files.ts";

/** A certificate and its key, PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/** A change of what is served: a pair that was loaded, with its end (milliseconds since the epoch), or files that cannot be used. */
export type CertificateEvent =
  | { readonly loaded: true; readonly notAfter: number }
  | { readonly loaded: false; readonly why: string };

/** `tls.crt` and `tls.key` of a folder, which are followed, until the program gives a pair of its own. */
export class CertificateFiles {
  readonly #files: FollowedFiles<KeyPair>;
  readonly #onChange: (event: CertificateEvent) => void;
  #given: KeyPair | undefined;

  /**
   * `onChange` is called when a new pair was loaded, and once for each state of the files that cannot be used, unless they are optional: another
   * pair will be given.
   */
  constructor(
    directory: string,
    onChange: (event: CertificateEvent) => void = () => undefined,
    { isOptional = false }: { readonly isOptional?: boolean } = {},
  ) {
    this.#onChange = onChange;
    this.#files = new FollowedFiles(
      [join(directory, "tls.crt"), join(directory, "tls.key")],
      ([cert = "", key = ""]) => this.#load({ cert, key }),
      (why) => {
        if (!isOptional) onChange({ loaded: false, why });
      },
    );
  }

  /** Serves this pair from now on; the files are not read any more. Returns false, and changes nothing, if it cannot be used. */
  give(pair: KeyPair): boolean {
    try {
      this.#given = this.#load(pair);
      return true;
    } catch (error) {
      this.#onChange({ loaded: false, why: `the certificate and key given by the program: ${describeError(error)}` });
      return false;
    }
  }

  /** The pair to serve now; `undefined` if no pair could be used yet. */
  current(): KeyPair | undefined {
    return this.#given ?? this.#files.current();
  }

  /** Throws if the text is not a certificate, or if the key belongs to another certificate. */
  #load(pair: KeyPair): KeyPair {
    createSecureContext(pair);
    const notAfter = Date.parse(new X509Certificate(pair.cert).validTo);
    this.#onChange({ loaded: true, notAfter });
    return pair;
  }
}
