import { X509Certificate } from "node:crypto";
import { authoritiesOf } from "#base/authorities";

/**
 * OpenSSL's trust settings behind a certificate (X509_CERT_AUX of `crypto/x509/x_x509a.c`): SEQUENCE { trust SEQUENCE { clientAuth } }, with
 * clientAuth 1.3.6.1.5.5.7.3.2.
 */
const TRUSTED_FOR_CLIENTS = Buffer.from("300c300a06082b06010505070302", "hex");

/**
 * The authorities of a PEM text, each marked as trusted for clients (`BEGIN TRUSTED CERTIFICATE` of openssl-x509(1)), so that OpenSSL needs no
 * root above one that is an intermediate. Contexts of clients have `allowPartialTrustChain` for this, which a server of Node does not pass
 * on to the context that it makes. What Go passes over is left out: OpenSSL would ignore a certificate that it cannot parse, and all that follow. Empty if
 * the text has no certificate that can be read.
 */
export function trustedForClients(pem: string): string {
  return authoritiesOf(pem)
    .map((block) => {
      const der = Buffer.concat([new X509Certificate(block).raw, TRUSTED_FOR_CLIENTS]);
      const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
      return `-----BEGIN TRUSTED CERTIFICATE-----\n${lines.join("\n")}\n-----END TRUSTED CERTIFICATE-----\n`;
    })
    .join("");
}
