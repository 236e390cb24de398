import type { Server, Socket } from "node:net";

/** The descriptor of a TCP socket that is open, which Node shows at its handle and nowhere else. A TLS socket shows none. */
export function descriptorOf(owner: Socket | Server): number | undefined {
  const { _handle: handle } = owner as { readonly _handle?: { readonly fd?: unknown } | null };
  const fd = handle?.fd;
  return typeof fd === "number" && fd >= 0 ? fd : undefined;
}
