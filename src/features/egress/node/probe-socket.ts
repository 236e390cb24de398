import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { KernelError } from "#kernel/errors";
import type { NetNs } from "#kernel/net";
import { UdpPort } from "#kernel/reactor";
import type { Endpoint } from "#kernel/socket";

/** A UDP socket in a client's namespace, with the client's address. Whoever opens it disposes of it. */
export interface ProbeSocket extends Disposable {
  /** The socket's UDP port. */
  readonly port: number;
  /** False after more datagrams than answers can be: it sends nothing any more. */
  readonly isOpen: boolean;
  send(bytes: Buffer, to: { readonly address: IpAddress; readonly port: number }): void;
}

/**
 * Called for each datagram that arrives, with its sender. `isRefused`: it is one of our own, and `from` is where it was sent: the kernel there says that nobody listens. The bytes are valid
 * during the call only.
 */
export type OnDatagram = (
  bytes: Buffer,
  from: { readonly address: string; readonly port: number; readonly isRefused?: boolean },
) => void;

/**
 * Datagrams of one second: a client has at most 20 answers for each router in doubt. A process in its pod may send to the socket too, and each one costs the thread of
 * the whole daemon.
 */
const MAX_PER_SECOND = 500;

/** Opens a socket of a client. Throws `KernelError` if its namespace does not have the address. */
export function openProbeSocket(netns: NetNs, address: IpAddress, onDatagram: OnDatagram, log: Logger): ProbeSocket {
  let isOpen = true;
  let count = 0;
  let since = performance.now();
  const pass = (bytes: Buffer, { address: peer, port }: Endpoint, isRefused: boolean): void => {
    if (!isOpen) return;
    const now = performance.now();
    if (now - since > 1000) [since, count] = [now, 0];
    count += 1;
    if (count <= MAX_PER_SECOND) {
      onDatagram(bytes, { address: String(peer), port, isRefused });
      return;
    }
    log.warn("a client's socket for probes gets more than answers: others probe in its place", { client: address });
    close();
  };
  // A namespace without a route, or with a filter that refuses: the probe is lost, and other clients send the next one.
  const lost = (error: KernelError): void =>
    log.debug("a probe was not sent", { client: address, error: describeError(error) });
  const udp = new UdpPort(
    address,
    {
      onDatagram: (bytes, from) => pass(bytes, from, false),
      onRefused: (bytes, to) => pass(bytes, to, true),
      onError: lost,
    },
    { netns },
  );
  const close = (): void => {
    isOpen = false;
    udp[Symbol.dispose]();
  };
  return {
    port: udp.port,
    get isOpen() {
      return isOpen;
    },
    send: (bytes, to) => {
      if (!isOpen) return;
      try {
        udp.send(bytes, to);
      } catch (error) {
        if (!(error instanceof KernelError)) throw error;
        lost(error);
      }
    },
    [Symbol.dispose]: close,
  };
}
