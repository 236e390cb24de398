import { CertificateError, makeCertificates } from "#lab/certificates";
import { ApiError } from "../errors.ts";

/** A server's certificate and key with the CA that clients must trust, all PEM. */
export interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

/**
 * Makes a CA and a server certificate for the given names and addresses, valid for ten years. Throws ApiError when openssl(1) is
 * missing or refuses.
 */
export async function selfSignedCertificate(hosts: readonly string[]): Promise<ServerCertificate> {
  try {
    const { ca, pairs } = await makeCertificates("isthmus-lab-ca", {
      server: { usage: "serverAuth", commonName: "isthmus-lab-api", hosts },
    });
    return { ca, ...pairs.server };
  } catch (cause) {
    if (!(cause instanceof CertificateError)) throw cause;
    throw new ApiError("InternalError", cause.message, { cause });
  }
}
