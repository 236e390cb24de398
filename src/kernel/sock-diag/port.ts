import { NETLINK, NetlinkConnection, type NetlinkMessage } from "#kernel/netlink";
import { decodeSocket, encodeRequest, SOCK_DIAG_BY_FAMILY } from "./codec.ts";
import type { ListeningSocket, SockDiag } from "./types.ts";

/** Opens the sockets of a namespace, whose handle may be closed afterwards. Needs no capability. Throws `KernelError`. */
export function openSockDiag(ns: { readonly fd: number }): SockDiag {
  const connection = NetlinkConnection.open(ns, NETLINK.SOCK_DIAG);
  const dump = (family: 4 | 6, protocol: ListeningSocket["protocol"]): ListeningSocket[] =>
    connection.dump(
      {
        type: SOCK_DIAG_BY_FAMILY,
        body: encodeRequest(family, protocol),
        what: () => `list the listening ${protocol} sockets of IPv${family}`,
      },
      ({ type, payload }: NetlinkMessage) =>
        type === SOCK_DIAG_BY_FAMILY ? decodeSocket(payload, protocol) : undefined,
    );
  return {
    listeners: () => ([4, 6] as const).flatMap((family) => [...dump(family, "TCP"), ...dump(family, "UDP")]),
    [Symbol.dispose]: () => connection[Symbol.dispose](),
  };
}
