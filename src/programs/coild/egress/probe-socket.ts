import { createSocket } from "node:dgram";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import type { NetNs } from "#kernel/net";
import { bindUdp, localEndpoint } from "#kernel/socket";

/** A UDP socket in a client's namespace, with the client's address. Whoever opens it disposes of it. */
export interface ProbeSocket extends Disposable {
  /** The socket's UDP port. */
  readonly port: number;
  /** False after an error of the socket, and after more datagrams than answers can be: it sends nothing any more. */
  readonly isOpen: boolean;
  send(bytes: Buffer, to: { readonly address: IpAddress; readonly port: number }): void;
}

/** Called for each datagram that arrives, with its sender. */
export type OnDatagram = (bytes: Buffer, from: { readonly address: string; readonly port: number }) => void;

/** Packets that wait to be sent by one socket; further ones are dropped, which their receivers see as a loss. */
const MAX_QUEUED = 100;

/**
 * Datagrams of one second: a client has at most 20 answers for each router in doubt. A process in its pod may send to the socket too, and each one costs the thread of
 * the whole daemon.
 */
const MAX_PER_SECOND = 500;

/** Opens a socket of a client. Throws `KernelError` if its namespace does not have the address. */
export function openProbeSocket(netns: NetNs, address: IpAddress, onDatagram: OnDatagram, log: Logger): ProbeSocket {
  const fd = bindUdp(address, 0, { netns });
  const { port } = localEndpoint(fd);
  const socket = createSocket(address.family === 4 ? "udp4" : "udp6");
  let isOpen = true;
  const close = (): void => {
    if (isOpen) socket.close();
    isOpen = false;
  };
  // A namespace without a route, or with a filter that refuses: the probe is lost, and other clients send the next one.
  const lost = (error: Error): void =>
    log.debug("a probe was not sent", { client: address, error: describeError(error) });
  socket.on("error", (error) => {
    lost(error);
    close();
  });
  let count = 0;
  let since = performance.now();
  socket.on("message", (bytes, from) => {
    const now = performance.now();
    if (now - since > 1000) [since, count] = [now, 0];
    count += 1;
    if (count <= MAX_PER_SECOND) return onDatagram(bytes, from);
    log.warn("a client's socket for probes gets more than answers: others probe in its place", { client: address });
    close();
  });
  socket.bind({ fd, exclusive: true });
  return {
    port,
    get isOpen() {
      return isOpen;
    },
    send: (bytes, to) => {
      if (!isOpen || socket.getSendQueueCount() >= MAX_QUEUED) return;
      socket.send(bytes, to.port, String(to.address), (error) => {
        if (error !== null) lost(error);
      });
    },
    [Symbol.dispose]: close,
  };
}
