/**
 * Authorities and certificates for tests of TLS.
 *
 * ```ts
 * const { ca, pairs } = makeCertificates("cluster-a", { server: ["a.example", "127.0.0.1"], agent: [] });
 * createServer({ ...pairs.server, ca, requestCert: true });
 * ```
 */
import { sign, X509Certificate } from "node:crypto";
import { type CertificatePair, type CertificateUsage, createAuthority, issueCertificate } from "#base/x509";
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

/** An authority that another one has signed: it is no root. */
export interface Intermediate<Name extends string> {
  /** Its certificate, and those that it signed for clients and servers with these hosts, PEM. */
  readonly ca: string;
  readonly pairs: Readonly<Record<Name, CertificatePair>>;
  /** The certificate of the root that signed it, and one that the root signed itself. */
  readonly root: string;
  readonly ofRoot: CertificatePair;
}

/** Makes a root, an authority below it and, by name, certificates of the latter. `name` has one letter. */
export function makeIntermediate<const Name extends string>(
  name: string,
  hostsByName: Readonly<Record<Name, readonly string[]>>,
): Intermediate<Name> {
  const validity = { notBefore: Date.now() - DAY_MS, notAfter: Date.now() + 30 * DAY_MS };
  // Names of one length: then the name of the root fits into the certificate of the other.
  const root = createAuthority({ ...validity, commonName: `root-${name}` });
  const signer = createAuthority({ ...validity, commonName: `mid--${name}` });
  const issue = (commonName: string, hosts: readonly string[], by: typeof root): CertificatePair =>
    issueCertificate(by, { ...validity, commonName, hosts, usages: ["serverAuth", "clientAuth"] });
  const pairs = Object.entries<readonly string[]>(hostsByName).map(
    ([commonName, hosts]) => [commonName, issue(commonName, hosts, signer)] as const,
  );
  return {
    ca: signedBy(root, signer),
    pairs: Object.fromEntries(pairs) as Record<Name, CertificatePair>,
    root: root.cert,
    ofRoot: issue("of-root", [], root),
  };
}

type Authority = ReturnType<typeof createAuthority>;

/** The self-signed certificate of an authority, signed by another one instead. */
function signedBy(issuer: Authority, { cert, name }: Authority): string {
  const { raw } = new X509Certificate(cert);
  // Each of the two SEQUENCEs at the beginning has a tag and three bytes of length.
  const body = Buffer.from(raw.subarray(4, 8 + raw.readUInt16BE(6)));
  // The issuer's name stands before the subject's.
  body.set(issuer.name, body.indexOf(name));
  const rest = raw.subarray(4 + body.length);
  const algorithm = rest.subarray(0, 2 + rest.readUInt8(1));
  const signature = sign("sha256", body, issuer.key);
  const content = Buffer.concat([body, algorithm, Buffer.of(0x03, signature.length + 1, 0), signature]);
  const der = Buffer.concat([Buffer.of(0x30, 0x82, content.length >> 8, content.length & 0xff), content]);
  return `-----BEGIN CERTIFICATE-----\n${der.toString("base64")}\n-----END CERTIFICATE-----\n`;
}
