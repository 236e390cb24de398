/**
 * Authorities and certificates of a lab, in which certificates are not renewed.
 *
 * Owns: how long they are valid. Does not know: what the keys are used for.
 *
 * ```ts
 * const { ca, pairs } = makeCertificates("lab-ca", { server: { usages: ["serverAuth"], commonName: "server", hosts: ["10.0.0.1"] } });
 * createServer({ ...pairs.server });
 * ```
 */
import { type CertificatePair, type CertificateUsage, createAuthority, issueCertificate } from "#base/x509";

/** The use of a certificate. */
export interface CertificateRequest {
  readonly usages: readonly CertificateUsage[];
  /** The subject's common name. */
  readonly commonName: string;
  /** Names and addresses. */
  readonly hosts: readonly string[];
  /** Milliseconds since 1970. Default: ten years from now. */
  readonly notAfter?: number;
}

/** An authority's certificate and the certificates that it signed, PEM. The authority's key is not kept. */
export interface Certificates<Name extends string> {
  readonly ca: string;
  readonly pairs: Readonly<Record<Name, CertificatePair>>;
}

const TEN_YEARS_MS = 3650 * 86_400_000;
/** The age of a new certificate, in milliseconds: the clocks of guests and of other processes differ. */
const PAST_MS = 30 * 86_400_000;

/** Makes an authority and certificates of it. Throws `X509Error` for a name that no certificate can have. */
export function makeCertificates<const Name extends string>(
  authority: string,
  requests: Readonly<Record<Name, CertificateRequest>>,
): Certificates<Name> {
  const now = Date.now();
  const validity = { notBefore: now - PAST_MS, notAfter: now + TEN_YEARS_MS };
  const signer = createAuthority({ ...validity, commonName: authority });
  const entries = Object.entries<CertificateRequest>(requests);
  const pairs = entries.map(
    ([name, request]) => [name, issueCertificate(signer, { ...validity, ...request })] as const,
  );
  return { ca: signer.cert, pairs: Object.fromEntries(pairs) as Record<Name, CertificatePair> };
}
