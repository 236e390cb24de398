import { X509Certificate } from "node:crypto";

const BEGIN = "-----BEGIN CERTIFICATE-----";
const END = "-----END CERTIFICATE-----";

/** The options of Node's TLS by which a client trusts certificates, each as PEM. */
export interface Trust {
  readonly ca: readonly string[];
  /** A listed certificate is trusted also if it is an intermediate or the server's own, as in Go. OpenSSL would want the root above it. */
  readonly allowPartialTrustChain: true;
}

/**
 * Pure: the certificates of a PEM text, as `CertPool.AppendCertsFromPEM` of Go's crypto/x509 takes them: other text, blocks of other types, blocks with
 * headers, and certificates that cannot be parsed are passed over. OpenSSL would ignore all that follow such a certificate.
 */
export function authoritiesOf(pem: string): string[] {
  const found: string[] = [];
  for (let from = pem.indexOf(BEGIN); from !== -1; ) {
    const start = from + BEGIN.length;
    const end = pem.indexOf(END, start);
    if (end === -1) break;
    const next = pem.indexOf(BEGIN, start);
    // A block without an end is passed over; the next one is whole.
    const isWhole = next === -1 || next > end;
    if (isWhole && isAtLineStart(pem, from)) {
      const block = `${BEGIN}\n${pem.slice(start, end).trim()}\n${END}\n`;
      if (isCertificate(block)) found.push(block);
    }
    from = isWhole ? pem.indexOf(BEGIN, end) : next;
  }
  return found;
}

/** Pure: the trust in the certificates of a PEM text; `undefined` if it has none. */
export function trustIn(pem: string): Trust | undefined {
  const ca = authoritiesOf(pem);
  return ca.length === 0 ? undefined : { ca, allowPartialTrustChain: true };
}

function isAtLineStart(text: string, at: number): boolean {
  return at === 0 || text[at - 1] === "\n";
}

function isCertificate(block: string): boolean {
  // A header is a line with a colon, which base64 does not have.
  if (block.includes(":")) return false;
  try {
    return new X509Certificate(block).raw.length > 0;
  } catch {
    return false;
  }
}
