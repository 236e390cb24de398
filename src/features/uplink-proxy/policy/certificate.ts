import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign } from "node:crypto";
import type { IpAddress } from "#base/ip";
import { bitString, integer, octetString, oid, sequence, set, tagged, time, truth, utf8 } from "./der.ts";

/** RFC 8410 section 3. */
const ED25519 = sequence(oid("1.3.101.112"));
/** RFC 5280 sections 4.2.1 and A.1. */
const COMMON_NAME = "2.5.4.3";
const BASIC_CONSTRAINTS = "2.5.29.19";
const KEY_USAGE = "2.5.29.15";
const EXTENDED_KEY_USAGE = "2.5.29.37";
const SUBJECT_ALT_NAME = "2.5.29.17";
const SUBJECT_KEY_ID = "2.5.29.14";
const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
const GENERAL_NAME_IP = 7;
/** PKCS #8 up to the 32 bytes of an Ed25519 key (RFC 8410 section 7). */
const PKCS8_PREFIX = Buffer.from("302e020100300506032b657004220420", "hex");
/** Fixed, so that all nodes of a cluster make the same certificate; effectively without end (docs/spec/uplink-proxy.md#9.1.2). */
const NOT_BEFORE = "20200101000000Z";
const NOT_AFTER = "99991231235959Z";

/** A certificate with its key, PEM. */
export interface CertificatePair {
  readonly cert: string;
  readonly key: string;
}

/** The seed of a certificate: the same seed gives the same certificate, byte for byte. */
export interface CertificateSeed {
  /** The private key, 32 bytes. */
  readonly key: Uint8Array;
  /** The serial number, at most 20 bytes. */
  readonly serial: Uint8Array;
}

/** A self-signed certificate for a server at an address, which clients can trust by itself: it is its own authority. */
export function selfSigned(
  address: IpAddress,
  commonName: string,
  { key: seed, serial }: CertificateSeed,
): CertificatePair {
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: "der", type: "pkcs8" });
  const name = sequence(set(sequence(oid(COMMON_NAME), utf8(commonName))));
  const publicKey = createPublicKey(key).export({ format: "der", type: "spki" });
  const body = sequence(
    tagged(0, integer(Buffer.of(2)), true), // version 3
    integer(serial),
    ED25519,
    name,
    sequence(time(NOT_BEFORE), time(NOT_AFTER)),
    name,
    publicKey,
    tagged(3, sequence(...extensions(address, publicKey)), true),
  );
  const cert = sequence(body, ED25519, bitString(sign(null, body, key)));
  return { cert: pem("CERTIFICATE", cert), key: exportKey(key) };
}

function extensions(address: IpAddress, publicKey: Uint8Array): Uint8Array[] {
  const extension = (id: string, value: Uint8Array, isCritical = false): Uint8Array =>
    sequence(oid(id), ...(isCritical ? [truth()] : []), octetString(value));
  // digitalSignature (bit 0) and keyCertSign (bit 5).
  const usage = bitString(Buffer.of(0b1000_0100), 2);
  const keyId = createHash("sha256").update(publicKey).digest().subarray(0, 20);
  return [
    extension(BASIC_CONSTRAINTS, sequence(truth()), true),
    extension(KEY_USAGE, usage, true),
    extension(EXTENDED_KEY_USAGE, sequence(oid(SERVER_AUTH))),
    extension(SUBJECT_ALT_NAME, sequence(tagged(GENERAL_NAME_IP, address.toBytes(), false))),
    extension(SUBJECT_KEY_ID, octetString(keyId)),
  ];
}

function exportKey(key: KeyObject): string {
  return key.export({ format: "pem", type: "pkcs8" }).toString();
}

function pem(label: string, der: Uint8Array): string {
  const lines =
    Buffer.from(der)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}
