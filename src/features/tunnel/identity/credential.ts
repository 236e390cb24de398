import type { CertificateNames } from "./certificate-names.ts";

/** The API server says these of a token that it accepts. */
export interface TokenNames {
  /** `NAMESPACE/NAME` of the service account. */
  readonly account: string;
  /** The pod for which the token was made, and its node; absent for tokens that are bound to none. */
  readonly pod: string | undefined;
  readonly node: string | undefined;
}

/** An agent has proved these. */
export interface Credential {
  readonly certificate: CertificateNames | undefined;
  readonly token: TokenNames | undefined;
}
