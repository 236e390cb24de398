import { createPrivateKey, X509Certificate } from "node:crypto";
import { authoritiesOf } from "#base/authorities";
import { createAuthority, issueServerCertificate } from "#base/x509";
import type { KeyPair } from "./certificates.ts";

const DAY_MS = 86_400_000;
/** The life of a new certificate and of its authority. */
const LIFE_MS = 365 * DAY_MS;
/** A certificate is renewed this long before its end, or when a third of its life is left, whichever is later. */
const RENEW_BEFORE_MS = 90 * DAY_MS;
/** A new certificate is valid from this long ago, for API servers whose clocks are behind. */
const BACKDATED_MS = 3_600_000;
/** The maximum number of authorities in a bundle, the newest first; each renewal adds an authority. */
const MAX_AUTHORITIES = 4;

/** The names of a certificate. */
export interface CertificateNames {
  /** The common name of the authority, such as `coil-ipam-ca`. */
  readonly authority: string;
  readonly organization: string;
  /** The names of the server; the first is its common name. */
  readonly hosts: readonly string[];
}

/** The content of a webhook server's Secret, PEM. */
export interface ServingCertificate extends KeyPair {
  /** The authorities that API servers must trust, the newest first. */
  readonly ca: string;
}

/** The state of a stored certificate: good until `renewAt` (milliseconds since the epoch), or to be replaced. */
export type CertificateState =
  | { readonly isGood: true; readonly renewAt: number }
  | { readonly isGood: false; readonly why: string };

/** Judges a stored certificate. Pure; any texts may be given. */
export function judgeCertificate(
  stored: Partial<ServingCertificate>,
  names: CertificateNames,
  now: number,
): CertificateState {
  const bad = (why: string): CertificateState => ({ isGood: false, why });
  for (const [file, text] of [
    ["tls.crt", stored.cert],
    ["tls.key", stored.key],
    ["ca.crt", stored.ca],
  ] as const) {
    if (text === undefined || text.trim() === "") return bad(`${file} is missing`);
  }
  const certificate = readCertificate(stored.cert ?? "");
  if (certificate === undefined) return bad("tls.crt is not a certificate");
  if (!fits(certificate, stored.key ?? "")) return bad("tls.key is not the key of tls.crt");
  const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
  if (to <= now) return bad(`it expired at ${new Date(to).toISOString()}`);
  if (from > now) return bad(`it is not valid before ${new Date(from).toISOString()}`);
  const lost = names.hosts.find((host) => certificate.checkHost(host) === undefined);
  if (lost !== undefined) return bad(`tls.crt is not for ${lost}`);
  const issuer = bundleOf(stored.ca ?? "").find((ca) => hasIssued(ca, certificate));
  if (issuer === undefined) return bad("no authority in ca.crt has signed tls.crt");
  const end = Math.min(to, Date.parse(issuer.validTo));
  if (end <= now) return bad(`its authority expired at ${new Date(end).toISOString()}`);
  const renewAt = end - Math.min(RENEW_BEFORE_MS, (end - from) / 3);
  return renewAt <= now ? bad(`it expires at ${new Date(end).toISOString()}`) : { isGood: true, renewAt };
}

/**
 * Makes a certificate of a new authority; the authority's key is discarded. The authorities of `stored` that have not expired stay in the
 * bundle, so that replicas that still serve the old certificate stay trusted.
 */
export function renewCertificate(
  stored: Partial<ServingCertificate>,
  names: CertificateNames,
  now: number,
): ServingCertificate {
  const { authority: commonName, organization, hosts } = names;
  const validity = { notBefore: now - BACKDATED_MS, notAfter: now + LIFE_MS };
  const authority = createAuthority({ commonName, organization, ...validity });
  const older = bundleOf(stored.ca ?? "").filter((ca) => ca.ca && Date.parse(ca.validTo) > now);
  const bundle = [authority.cert, ...older.slice(0, MAX_AUTHORITIES - 1).map(String)];
  return {
    ...issueServerCertificate(authority, { hosts, organization, ...validity }),
    ca: bundle.map((pem) => `${pem.trim()}\n`).join(""),
  };
}

/** The first certificate of a PEM text. */
function readCertificate(pem: string): X509Certificate | undefined {
  try {
    return new X509Certificate(pem);
  } catch {
    // OpenSSL fails in many ways; each error means that this text is not a certificate.
    return undefined;
  }
}

/** The first authorities of a bundle, which others may have made long. */
function bundleOf(pem: string): X509Certificate[] {
  return authoritiesOf(pem)
    .slice(0, 2 * MAX_AUTHORITIES)
    .map((block) => new X509Certificate(block));
}

function fits(certificate: X509Certificate, key: string): boolean {
  try {
    return certificate.checkPrivateKey(createPrivateKey(key));
  } catch {
    // As above, any error means that this text is not a key.
    return false;
  }
}

function hasIssued(ca: X509Certificate, certificate: X509Certificate): boolean {
  return certificate.checkIssued(ca) && certificate.verify(ca.publicKey);
}
