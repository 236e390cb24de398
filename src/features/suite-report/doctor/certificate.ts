import { X509Certificate } from "node:crypto";

/** The time before its end in which a certificate is told, in milliseconds. */
const SOON_MS = 7 * 24 * 3_600_000;

/** The first certificate of a PEM text or of its base64; `undefined` if it is none. Pure. */
export function parseCertificate(pem: string | Uint8Array): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch (error) {
    // OpenSSL's errors have a code.
    if (!(error instanceof Error && "code" in error)) throw error;
    return undefined;
  }
}

/** The fault of a certificate's validity at a time; `undefined` without a fault. Pure. */
export function validityFault(
  certificate: Pick<X509Certificate, "validFrom" | "validTo">,
  now: number,
): { readonly isExpired: boolean; readonly text: string } | undefined {
  const end = Date.parse(certificate.validTo);
  if (now >= end) return { isExpired: true, text: `expired at ${certificate.validTo}` };
  if (now < Date.parse(certificate.validFrom))
    return { isExpired: true, text: `is not valid before ${certificate.validFrom}` };
  if (end - now < SOON_MS)
    return {
      isExpired: false,
      text: `ends in ${Math.floor((end - now) / 86_400_000)} days, at ${certificate.validTo}`,
    };
  return undefined;
}
