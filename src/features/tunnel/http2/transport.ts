import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import { keepTcpAlive } from "#kernel/socket";
import { type CertificateNames, certificateNames } from "../identity/certificate-names.ts";
import { clientBehind } from "./client-behind.ts";
import { descriptorOf } from "./descriptor.ts";

/**
 * The times after which the kernel detects a dead peer (docs/spec/tunnel.md#11), in milliseconds. The PINGs of `--keepalive-time` are rare, since a
 * server of Konnectivity ends sessions with many. Go has the same interval, and gRPC in Go 20 s without an acknowledgement.
 */
const TCP_ALIVE = { probeMs: 15_000, timeoutMs: 30_000 };

/** The peer of a connection. */
export interface TransportPeer {
  /** `host:port` without brackets, or "unix". Behind a balancer that says whose its connection is, that client's. */
  readonly address: string;
  /** `host:port` of such a balancer. */
  readonly balancer?: string;
  /** The server name (SNI) of its ClientHello. */
  readonly serverName: string | undefined;
  /** The common name of its client certificate, if one was verified. */
  readonly commonName: string | undefined;
  /** All names of this certificate; absent if none was verified. */
  readonly certificate?: CertificateNames | undefined;
}

export interface TransportEvents {
  /** Received bytes. The callee may keep them. */
  onData(chunk: Uint8Array): void;
  /** The peer has ended the connection, or it was lost. May be called more than once. */
  onLost(reason: string): void;
}

/** The connection under a session: TLS, TCP or a UNIX socket. */
export interface Transport {
  /** Starts reading. Called once. */
  start(events: TransportEvents): void;
  /**
   * Writes views in their order. They must not change until `onWritten` is called, which is later and in order, when the connection has taken
   * them. It is not called once the connection is lost.
   */
  write(views: readonly Uint8Array[], onWritten: () => void): void;
  /** Stops and starts `onData`. */
  pause(): void;
  resume(): void;
  /** Closes at once. Bytes that the connection has not handed to the kernel are lost. */
  destroy(): void;
  /** Closes after the bytes that were written, at the latest after `lingerMs` milliseconds. Received bytes are read and handed on. */
  closeSoon(lingerMs: number): void;
  peer(): TransportPeer;
}

/** A socket of Node, over TLS after its handshake. */
export class SocketTransport implements Transport {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
    if (socket instanceof TLSSocket) socket.disableRenegotiation();
    const fd = descriptorOf(socket);
    // A UNIX socket has no remote address, and its peer is on this machine.
    if (fd !== undefined && socket.remoteAddress !== undefined) keepTcpAlive(fd, TCP_ALIVE);
  }

  start(events: TransportEvents): void {
    const socket = this.#socket;
    socket.on("data", (chunk) => events.onData(chunk));
    socket.once("end", () => events.onLost(LOST));
    socket.once("error", (error) => events.onLost(error.message));
    socket.once("close", () => events.onLost(LOST));
  }

  write(views: readonly Uint8Array[], onWritten: () => void): void {
    const socket = this.#socket;
    socket.cork();
    for (let at = 0; at < views.length; at += 1) {
      const view = views[at] as Uint8Array;
      if (at < views.length - 1) socket.write(view);
      else
        socket.write(view, (error) => {
          // After a failed write the close event of the connection follows.
          if (error === null || error === undefined) onWritten();
        });
    }
    socket.uncork();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  closeSoon(lingerMs: number): void {
    const socket = this.#socket;
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    timer.unref();
    socket.once("close", () => clearTimeout(timer));
    socket.resume();
    socket.destroySoon();
  }

  peer(): TransportPeer {
    const socket = this.#socket;
    const tls = socket instanceof TLSSocket ? socket : undefined;
    const address = socket.remoteAddress === undefined ? "unix" : `${socket.remoteAddress}:${socket.remotePort}`;
    const client = clientBehind(socket);
    const verified = tls?.authorized === true ? tls.getPeerCertificate() : undefined;
    const name: unknown = verified?.subject?.CN;
    const serverName = (tls as { readonly servername?: unknown } | undefined)?.servername;
    return {
      ...(client === undefined ? { address } : { address: client, balancer: address }),
      serverName: typeof serverName === "string" ? serverName : undefined,
      commonName: typeof name === "string" ? name : undefined,
      certificate: verified === undefined ? undefined : certificateNames(verified),
    };
  }
}

const LOST = "the connection was lost";
