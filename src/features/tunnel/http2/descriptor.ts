import type { Socket } from "node:net";

/** The file descriptor of a socket, also of one over TLS; `undefined` once the socket is closed. */
export function descriptorOf(socket: Socket): number | undefined {
  const { _handle: handle } = socket as unknown as { readonly _handle?: { readonly fd: number } | null };
  return handle === null || handle === undefined || handle.fd < 0 ? undefined : handle.fd;
}
