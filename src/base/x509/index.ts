/**
 * Makes X.509 certificates (RFC 5280), signed by an own authority or self-signed: Node.js can read certificates, but cannot make them.
 *
 * Owns: DER (X.690) of certificates with ECDSA keys on P-256 or Ed25519 keys. Does not know: where keys are kept, when a certificate is
 * renewed.
 *
 * ```ts
 * const authority = createAuthority({ commonName: "coil-ipam-ca", organization: "coil", notBefore, notAfter });
 * const { cert, key } = issueServerCertificate(authority, { hosts: ["a.kube-system.svc"], organization: "coil", notBefore, notAfter });
 * ```
 */
export {
  type CertificatePair,
  type CertificateUsage,
  createAuthority,
  issueCertificate,
  issueServerCertificate,
  selfSignedServer,
  X509Error,
} from "./certificate.ts";
