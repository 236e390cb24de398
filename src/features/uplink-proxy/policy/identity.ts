import { hkdfSync, randomBytes } from "node:crypto";
import type { IpAddress } from "#base/ip";
import { selfSignedServer } from "#base/x509";

/**
 * Labels of key derivation: distinct for each use, and with a version, so that no derived key can be used as another
 * (docs/spec/uplink-proxy.md#9.1.1).
 */
const LABEL = { token: "mgmtproxy/token/v1", key: "mgmtproxy/tls-key/v1", serial: "mgmtproxy/tls-serial/v1" } as const;
const KEY_BYTES = 32;
const SERIAL_BYTES = 16;
const COMMON_NAME = "mgmtproxy";
/** Fixed, so that all nodes of a cluster make the same certificate; effectively without end (docs/spec/uplink-proxy.md#9.1.2). */
const VALIDITY = { notBefore: Date.UTC(2020, 0, 1), notAfter: Date.UTC(9999, 11, 31, 23, 59, 59) } as const;

/** Certificate and token of the pod listener. */
export interface Identity {
  /** 64 characters of hexadecimal. */
  readonly token: string;
  /** PEM. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
}

/** Derives the identity from the cluster's secret: it is the same on every node with that secret. */
export function deriveIdentity(secret: Uint8Array, address: IpAddress): Identity {
  const derive = (label: string, bytes: number): Buffer =>
    Buffer.from(hkdfSync("sha256", secret, Buffer.alloc(0), label, bytes));
  return identityOf(
    {
      token: derive(LABEL.token, KEY_BYTES),
      key: derive(LABEL.key, KEY_BYTES),
      serial: derive(LABEL.serial, SERIAL_BYTES),
    },
    address,
  );
}

/** Makes a random identity, which only this node has. */
export function freshIdentity(address: IpAddress): Identity {
  return identityOf(
    { token: randomBytes(KEY_BYTES), key: randomBytes(KEY_BYTES), serial: randomBytes(SERIAL_BYTES) },
    address,
  );
}

function identityOf(
  { token, key, serial }: { readonly token: Buffer; readonly key: Buffer; readonly serial: Buffer },
  address: IpAddress,
): Identity {
  const pair = selfSignedServer({ ...VALIDITY, address, commonName: COMMON_NAME }, { key, serial });
  return { token: token.toString("hex"), ...pair };
}
