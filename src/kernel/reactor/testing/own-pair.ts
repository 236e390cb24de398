import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { connectTcp, TcpListener, TcpStream } from "../index.ts";

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

/** Waits for this number of rounds of the event loop. */
export async function ticks(count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) await new Promise((resolve) => setImmediate(resolve));
}
