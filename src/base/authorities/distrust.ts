/** Codes of OpenSSL for a certificate that no trusted authority has signed (x509_vfy.h). */
const NOT_TRUSTED: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "CERT_UNTRUSTED",
]);

/**
 * Pure: a sentence for an error of TLS that says that the peer's certificate is not trusted; `undefined` for any other error. Node's own text tells the user to run Node
 * with a flag. `trusted`: whom we trust, as in "the certificate-authority of kubeconfig /root/.kube/config".
 */
export function distrustText(error: unknown, trusted: string): string | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
    const { code } = at as NodeJS.ErrnoException;
    if (code !== undefined && NOT_TRUSTED.has(code))
      return `its certificate is signed by none of the authorities of ${trusted} (${code})`;
  }
  return undefined;
}
