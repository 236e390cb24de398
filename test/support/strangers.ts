/**
 * Clients that prove nothing: they say nothing, or half a message, or many messages at once, and read the answers or do not.
 *
 * Owns: their connections. Does not know: the listener.
 *
 * ```ts
 * await using strangers = await Strangers.press(place, { count: 100, bytes: half, isReading: false, alpn: undefined });
 * ```
 */
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { Place } from "./listeners.ts";

export interface StrangersOptions {
  readonly count: number;
  /** Each one sends this. */
  readonly bytes: Uint8Array;
  readonly isReading: boolean;
  /** They shake hands in TLS first, and offer this protocol. */
  readonly alpn: string | undefined;
}

/** The address from which strangers come. */
export const STRANGER = "127.0.0.1";

export class Strangers implements Disposable {
  readonly #sockets: Socket[] = [];

  /** Resolves when each one is connected, or was ended. */
  static async press(place: Place, options: StrangersOptions): Promise<Strangers> {
    const all = new Strangers();
    await Promise.all(Array.from({ length: options.count }, () => all.#come(place, options)));
    return all;
  }

  /** Those that were not ended yet. */
  get open(): number {
    return this.#sockets.filter(({ destroyed }) => !destroyed).length;
  }

  /** Bytes that the kernel has taken of them, and that they have read. */
  get moved(): number {
    return this.#sockets.reduce(
      (sum, { bytesRead, bytesWritten, writableLength }) => sum + bytesRead + bytesWritten - writableLength,
      0,
    );
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #come({ port, path }: Place, { bytes, isReading, alpn }: StrangersOptions): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const raw =
      path === undefined ? connect({ host: "127.0.0.1", port: port ?? 0, localAddress: STRANGER }) : connect({ path });
    const socket =
      alpn === undefined ? raw : connectTls({ socket: raw, rejectUnauthorized: false, ALPNProtocols: [alpn] });
    raw.on("error", () => raw.destroy());
    raw.once("close", () => socket.destroy());
    this.#sockets.push(raw);
    socket.on("error", () => socket.destroy());
    socket.once(alpn === undefined ? "connect" : "secureConnect", () => {
      if (isReading) socket.resume();
      socket.write(bytes);
      resolve();
    });
    socket.once("close", () => resolve());
    return promise;
  }
}
