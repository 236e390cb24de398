import { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { C } from "./calls.ts";

/** A transport address. */
export interface Endpoint {
  readonly address: IpAddress;
  /** 0 to 65535. */
  readonly port: number;
  /** The interface index of a link-local IPv6 address. */
  readonly scopeId?: number;
}

/** `struct sockaddr_in` or `sockaddr_in6` (include/uapi/linux/in.h, in6.h). */
export function encodeSockaddr(endpoint: Endpoint): Uint8Array {
  const { address, port, scopeId = 0 } = endpoint;
  // The buffer comes from Node.js's pool: passing a small separate array to the kernel takes longer than the system call.
  const bytes = Buffer.allocUnsafe(address.family === 4 ? 16 : 28);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = 0;
  // The family in the host's order, which is little-endian; the port in the network's.
  bytes[0] = address.family === 4 ? C.AF_INET : C.AF_INET6;
  bytes[2] = port >>> 8;
  bytes[3] = port;
  address.writeTo(bytes, address.family === 4 ? 4 : 8);
  if (scopeId !== 0) bytes.writeUInt32LE(scopeId, 24);
  return bytes;
}

/** The reverse of {@link encodeSockaddr}. Throws {@link KernelError} `invalid` for another family, or an address that is too short. */
export function decodeSockaddr(bytes: Uint8Array): Endpoint {
  const byte = (at: number): number => bytes[at] ?? 0;
  const family = bytes.length >= 16 ? byte(0) + byte(1) * 256 : 0;
  const port = byte(2) * 256 + byte(3);
  if (family === C.AF_INET) return { address: IpAddress.fromBytes(bytes.subarray(4, 8)), port };
  if (family === C.AF_INET6 && bytes.length >= 28) {
    const scopeId = new DataView(bytes.buffer, bytes.byteOffset).getUint32(24, true);
    const endpoint = { address: IpAddress.fromBytes(bytes.subarray(8, 24)), port };
    return scopeId === 0 ? endpoint : { ...endpoint, scopeId };
  }
  throw new KernelError("invalid", `Cannot read a socket address of ${bytes.length} bytes and family ${family}`);
}

/** The size of `sun_path` in struct sockaddr_un (include/uapi/linux/un.h). */
const UNIX_PATH_BYTES = 108;

/**
 * `struct sockaddr_un` of the path of a UNIX socket. Throws {@link KernelError} `invalid` for an empty path, one of more than 107 bytes, or
 * one with a NUL character: the kernel would cut it, or take it for a name without a file.
 */
export function encodeUnixPath(path: string): Uint8Array {
  const text = Buffer.from(path);
  if (text.length === 0 || text.length >= UNIX_PATH_BYTES || text.includes(0)) {
    throw new KernelError(
      "invalid",
      `Cannot use ${JSON.stringify(path)} as the path of a UNIX socket: it has ${text.length} bytes; a path has 1 to ${UNIX_PATH_BYTES - 1}, none of them NUL`,
    );
  }
  const bytes = Buffer.alloc(2 + text.length + 1);
  bytes[0] = C.AF_UNIX;
  bytes.set(text, 2);
  return bytes;
}
