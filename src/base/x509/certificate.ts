import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from "node:crypto";
import { ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { bits, explicit, implicit, octets, oid, sequence, setOf, TRUE, time, unsigned, utf8 } from "./der.ts";

/** The faults of a request for a certificate. */
type X509ErrorCode = "invalid-request";

/** A certificate with these contents cannot be made. */
export class X509Error extends ExpectedError<X509ErrorCode> {
  override readonly name = "X509Error";
}

/** From when to when a certificate is valid, milliseconds since the epoch; whole seconds count. Years 1950 to 9999. */
interface Validity {
  readonly notBefore: number;
  readonly notAfter: number;
}

/** An authority that can sign. The key exists only in this object: without the object the authority cannot sign any more. */
interface Authority {
  /** The authority's own certificate, PEM. */
  readonly cert: string;
  readonly key: KeyObject;
  /** Its name, DER. */
  readonly name: Uint8Array;
  /** The identifier of the authority's key. */
  readonly keyId: Uint8Array;
}

/** The bound on a common name (RFC 5280 appendix A, ub-common-name), characters. */
const MAX_COMMON_NAME = 64;

const OID = {
  commonName: "2.5.4.3",
  organization: "2.5.4.10",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  ed25519: "1.3.101.112",
  subjectKeyId: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKeyId: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
  clientAuth: "1.3.6.1.5.5.7.3.2",
} as const;

/** The way certificates are signed: the AlgorithmIdentifier, and the digest that Node.js's `sign` takes. */
const ECDSA = { id: sequence(oid(OID.ecdsaWithSha256)), digest: "sha256" } as const;
const ED25519 = { id: sequence(oid(OID.ed25519)), digest: null } as const;
/** PKCS #8 up to the 32 bytes of an Ed25519 key (RFC 8410 section 7). */
const ED25519_PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");

/** The subject of a certificate. */
interface Subject {
  readonly commonName: string;
  /** Default: the name has no organization. */
  readonly organization?: string;
}

/** Makes an authority that signs itself, and has no other authority below it. Throws {@link X509Error}. */
export function createAuthority(init: Validity & Subject): Authority {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = nameOf(init);
  const keyId = keyIdOf(publicKey);
  const cert = signed({
    issuer: name,
    subject: name,
    validity: init,
    publicKey,
    signer: privateKey,
    extensions: [
      // cA, and no authority below this one.
      extension(OID.basicConstraints, sequence(TRUE, unsigned(Buffer.from([0]))), "critical"),
      // keyCertSign (5) and cRLSign (6).
      extension(OID.keyUsage, bits(Buffer.from([0b0000_0110]), 1), "critical"),
      extension(OID.subjectKeyId, octets(keyId)),
    ],
  });
  return { cert, key: privateKey, name, keyId };
}

/** The use of a certificate (RFC 5280 4.2.1.12). */
export type CertificateUsage = "serverAuth" | "clientAuth";

/** A certificate with its key, PEM. */
export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
}

/** Makes a key and a certificate for TLS with these names and IP addresses. Throws {@link X509Error}. */
export function issueCertificate(
  authority: Authority,
  init: Validity & Subject & { readonly hosts: readonly string[]; readonly usages: readonly CertificateUsage[] },
): CertificatePair {
  const { hosts, usages } = init;
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const cert = signed({
    issuer: authority.name,
    subject: nameOf(init),
    validity: init,
    publicKey,
    signer: authority.key,
    extensions: [
      extension(OID.basicConstraints, sequence(), "critical"),
      // digitalSignature (0).
      extension(OID.keyUsage, bits(Buffer.from([0b1000_0000]), 7), "critical"),
      extension(OID.extendedKeyUsage, sequence(...usages.map((usage) => oid(OID[usage])))),
      ...(hosts.length === 0 ? [] : [extension(OID.subjectAltName, sequence(...hosts.map(alternative)))]),
      extension(OID.subjectKeyId, octets(keyIdOf(publicKey))),
      extension(OID.authorityKeyId, sequence(implicit(0, authority.keyId))),
    ],
  });
  return { cert, key: pkcs8(privateKey) };
}

/** {@link issueCertificate} for a TLS server; the first name is also its common name. Throws {@link X509Error}. */
export function issueServerCertificate(
  authority: Authority,
  init: Validity & { readonly hosts: readonly string[]; readonly organization?: string },
): CertificatePair {
  const [commonName] = init.hosts;
  if (commonName === undefined) throw new X509Error("invalid-request", "a server certificate needs at least one name");
  return issueCertificate(authority, { ...init, commonName, usages: ["serverAuth"] });
}

/** The seed of a certificate: the same seed gives the same certificate, byte for byte. */
export interface CertificateSeed {
  /** The private key of Ed25519, 32 bytes. */
  readonly key: Uint8Array;
  /** The serial number, at most 20 bytes, most significant first. */
  readonly serial: Uint8Array;
}

/**
 * Makes a self-signed certificate for a server at an address, which clients can trust by itself: it is its own authority. Its bytes depend
 * on the arguments alone, and must not change between versions: all nodes that derive it from one secret must present the same certificate.
 */
export function selfSignedServer(
  init: Validity & { readonly address: IpAddress; readonly commonName: string },
  { key: seed, serial }: CertificateSeed,
): CertificatePair {
  const key = createPrivateKey({ key: Buffer.concat([ED25519_PKCS8, seed]), format: "der", type: "pkcs8" });
  const publicKey = createPublicKey(key);
  const name = sequence(setOf(sequence(oid(OID.commonName), utf8(init.commonName))));
  const keyId = createHash("sha256")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest()
    .subarray(0, 20);
  const cert = signed({
    issuer: name,
    subject: name,
    validity: init,
    publicKey,
    signer: key,
    algorithm: ED25519,
    serial,
    extensions: [
      extension(OID.basicConstraints, sequence(TRUE), "critical"),
      // digitalSignature (0) and keyCertSign (5).
      extension(OID.keyUsage, bits(Buffer.of(0b1000_0100), 2), "critical"),
      extension(OID.extendedKeyUsage, sequence(oid(OID.serverAuth))),
      extension(OID.subjectAltName, sequence(alternative(init.address.toString()))),
      extension(OID.subjectKeyId, octets(keyId)),
    ],
  });
  return { cert, key: pkcs8(key) };
}

interface Contents {
  readonly issuer: Uint8Array;
  readonly subject: Uint8Array;
  readonly validity: Validity;
  readonly publicKey: KeyObject;
  readonly signer: KeyObject;
  /** Default: ECDSA with SHA-256. */
  readonly algorithm?: typeof ECDSA | typeof ED25519;
  /** Default: {@link randomSerial}. */
  readonly serial?: Uint8Array;
  readonly extensions: readonly Uint8Array[];
}

/** TBSCertificate, signed (RFC 5280 4.1), PEM. */
function signed(contents: Contents): string {
  const { issuer, subject, validity, publicKey, signer, extensions } = contents;
  const { algorithm = ECDSA, serial = randomSerial() } = contents;
  const { notBefore, notAfter } = validity;
  if (!(notBefore < notAfter)) {
    throw new X509Error("invalid-request", `a certificate cannot be valid from ${notBefore} to ${notAfter}`);
  }
  const body = sequence(
    // Version 3.
    explicit(0, unsigned(Buffer.from([2]))),
    unsigned(serial),
    algorithm.id,
    issuer,
    sequence(time(notBefore), time(notAfter)),
    subject,
    publicKey.export({ type: "spki", format: "der" }),
    explicit(3, sequence(...extensions)),
  );
  const der = sequence(body, algorithm.id, bits(sign(algorithm.digest, body, signer)));
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

/** 128 random bits: two authorities of one name never assign the same number. The first byte is not 0, as numbers are positive. */
function randomSerial(): Uint8Array {
  return Buffer.concat([Buffer.of(0x40 | (randomBytes(1).readUInt8() & 0x3f)), randomBytes(15)]);
}

function pkcs8(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

function nameOf({ commonName, organization }: Subject): Uint8Array {
  const one = (type: string, text: string): Buffer => {
    if (text === "" || [...text].length > MAX_COMMON_NAME) {
      throw new X509Error(
        "invalid-request",
        `${JSON.stringify(text)} cannot be a certificate's name: it must have 1 to ${MAX_COMMON_NAME} characters`,
      );
    }
    return setOf(sequence(oid(type), utf8(text)));
  };
  const ofOrganization = organization === undefined ? [] : [one(OID.organization, organization)];
  return sequence(...ofOrganization, one(OID.commonName, commonName));
}

/** The SHA-1 of the public key's bits (RFC 5280 4.2.1.2, method 1): an identifier, not a protection. */
function keyIdOf(publicKey: KeyObject): Uint8Array {
  const spki = publicKey.export({ type: "spki", format: "der" });
  // The point of P-256 (65 bytes) is the end of the structure.
  return createHash("sha1").update(spki.subarray(-65)).digest();
}

function extension(id: string, value: Uint8Array, critical?: "critical"): Uint8Array {
  return critical === undefined ? sequence(oid(id), octets(value)) : sequence(oid(id), TRUE, octets(value));
}

/** GeneralName: dNSName (2) or iPAddress (7). */
function alternative(host: string): Uint8Array {
  const address = IpAddress.tryParse(host);
  if (address !== undefined) return implicit(7, address.toBytes());
  if (!/^[A-Za-z0-9*]([-A-Za-z0-9.]*[A-Za-z0-9])?$/.test(host)) {
    throw new X509Error("invalid-request", `${JSON.stringify(host)} is neither a DNS name nor an IP address`);
  }
  return implicit(2, Buffer.from(host, "ascii"));
}
