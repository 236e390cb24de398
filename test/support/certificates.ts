/**
 * Authorities and certificates for tests of TLS.
 *
 * ```ts
 * const { ca, pairs } = makeCertificates("cluster-a", { server: ["a.example", "127.0.0.1"], agent: [] });
 * createServer({ ...pairs.server, ca, requestCert: true });
 * ```
 */
import type { CertificateUsage } from "#base/x509";
import { type CertificateRequest, type Certificates, makeCertificates as make } from "#lab/certificates";

/** Special properties of a certificate. */
export interface CertificateTraits {
  /** If true, it was valid until yesterday. */
  readonly expired?: boolean;
  /** The only allowed use (extendedKeyUsage). */
  readonly usage?: CertificateUsage;
}

const DAY_MS = 86_400_000;

/** Makes an authority and, by name, certificates of it for hosts and addresses, valid for servers and for clients by default. */
export function makeCertificates<const Name extends string>(
  authority: string,
  hostsByName: Readonly<Record<Name, readonly string[]>>,
  traits: Partial<Readonly<Record<Name, CertificateTraits>>> = {},
): Certificates<Name> {
  const requests = Object.entries<readonly string[]>(hostsByName).map(([name, hosts]) => {
    const { expired = false, usage }: CertificateTraits = traits[name as Name] ?? {};
    const usages: readonly CertificateUsage[] = usage === undefined ? ["serverAuth", "clientAuth"] : [usage];
    return [name, { commonName: name, hosts, usages, ...(expired && { notAfter: Date.now() - DAY_MS }) }] as const;
  });
  return make(authority, Object.fromEntries(requests) as Record<Name, CertificateRequest>);
}
