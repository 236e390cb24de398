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
  const bytes = new Uint8Array(address.family === 4 ? 16 : 28);
  // The family in the host's order, which is little-endian; the port in the network's.
  bytes[0] = address.family === 4 ? C.AF_INET : C.AF_INET6;
  bytes[2] = port >>> 8;
  bytes[3] = port;
  address.writeTo(bytes, address.family === 4 ? 4 : 8);
  if (scopeId !== 0) new DataView(bytes.buffer).setUint32(24, scopeId, true);
  return bytes;
}

/** The reverse of {@link encodeSockaddr}. Throws {@link KernelError} `invalid` for another family or a short one. */
export function decodeSockaddr(bytes: Uint8Array): Endpoint {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const family = bytes.length >= 16 ? view.getUint16(0, true) : 0;
  if (family === C.AF_INET) {
    return { address: IpAddress.fromBytes(bytes.subarray(4, 8)), port: view.getUint16(2) };
  }
  if (family === C.AF_INET6 && bytes.length >= 28) {
    const scopeId = view.getUint32(24, true);
    const endpoint = { address: IpAddress.fromBytes(bytes.subarray(8, 24)), port: view.getUint16(2) };
    return scopeId === 0 ? endpoint : { ...endpoint, scopeId };
  }
  throw new KernelError("invalid", `Cannot read a socket address of ${bytes.length} bytes and family ${family}`);
}
