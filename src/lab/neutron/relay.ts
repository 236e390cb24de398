import { createServer, type Socket } from "node:net";
import type { IpAddress } from "#base/ip";
import { resetSocket } from "#base/socket-reset";
import { connectInside, InsideError } from "#lab/inside";

/** Time to connect, in milliseconds. */
const CONNECT_MS = 10_000;

/** A port on loopback that leads into a namespace. */
export interface Relay extends AsyncDisposable {
  readonly port: number;
}

/** Relays connections from loopback, where this process is, to a listener in another namespace. Disposing ends all of them. */
export async function openRelay(
  netns: string,
  place: { readonly address: IpAddress; readonly port: number },
): Promise<Relay> {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.once("error", () => socket.destroy());
    socket.once("close", () => sockets.delete(socket));
  };
  const pass = async (from: Socket): Promise<void> => {
    keep(from);
    try {
      const to = await connectInside({ name: netns }, place, { timeoutMs: CONNECT_MS });
      keep(to);
      to.once("close", () => from.destroy());
      from.once("close", () => to.destroy());
      if (from.destroyed) to.destroy();
      from.pipe(to).pipe(from);
    } catch (error) {
      // Nobody listens there now; the client sees that.
      if (!(error instanceof InsideError)) throw error;
      resetSocket(from);
    }
  };
  const server = createServer({ allowHalfOpen: true }, (from) => void pass(from));
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  const bound = server.address();
  if (typeof bound !== "object" || bound === null) throw new Error("a TCP listener has a port");
  return {
    port: bound.port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}
