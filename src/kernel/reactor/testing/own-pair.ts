import { randomUUID } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, connectUnix, TcpListener, TcpStream, UnixListener, UnixStream } from "../index.ts";
import type { StreamSocket } from "../stream-socket.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");

/** Both ends of a connection, first the end that dialled. */
export async function ownPair(): Promise<[TcpStream, TcpStream]> {
  const accepted = Promise.withResolvers<TcpStream>();
  const fd = listenTcp(LOOPBACK, 0, { noDelay: true });
  const { port } = localEndpoint(fd);
  const listener = new TcpListener(fd, {
    onClient: (client, remote) => accepted.resolve(TcpStream.adopt(client, remote)),
    onFault: accepted.reject,
    onError: accepted.reject,
  });
  const dialled = await connectTcp({ address: LOOPBACK, port });
  const other = await accepted.promise;
  listener.close();
  return [dialled, other];
}

/** A path that no socket has. A process's number is not enough: in namespaces of their own two test runs may have the same. */
export function freshPath(): string {
  return join(tmpdir(), `isthmus-reactor-${randomUUID()}.sock`);
}

/** As {@link ownPair}, over a UNIX socket. */
export async function ownUnixPair(): Promise<[UnixStream, UnixStream]> {
  const accepted = Promise.withResolvers<UnixStream>();
  const listener = UnixListener.listen(
    freshPath(),
    { umask: 0o077 },
    {
      onClient: (client) => accepted.resolve(UnixStream.adopt(client)),
      onFault: accepted.reject,
      onError: accepted.reject,
    },
  );
  const dialled = connectUnix(listener.path);
  const other = await accepted.promise;
  listener.close();
  return [dialled, other];
}

/** Both ends of a connection, for tests that run over each kind of socket. */
export const PAIRS: Readonly<Record<"TcpStream" | "UnixStream", () => Promise<[StreamSocket, StreamSocket]>>> = {
  TcpStream: ownPair,
  UnixStream: ownUnixPair,
};

/** Waits for this number of rounds of the event loop. */
export async function ticks(count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await new Promise((resolve) => setImmediate(resolve));
}
