import { makeCertificates } from "#lab/certificates";

/** A server's certificate and key with the CA that clients must trust, all PEM. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/** Makes a CA and a server certificate for the given names and addresses, valid for ten years. Throws `X509Error`. */
export function selfSignedCertificate(hosts: readonly string[]): ServerCertificate {
  const { ca, pairs } = makeCertificates("isthmus-lab-ca", {
    server: { usages: ["serverAuth"], commonName: "isthmus-lab-api", hosts },
  });
  return { ca, ...pairs.server };
}
