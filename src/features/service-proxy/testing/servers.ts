/** Servers that answer `machine client address port`. */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { IpAddress } from "#base/ip";
import type { NetNs } from "#kernel/net";
import { bindUdp, listenTcp } from "#kernel/socket";

/** Place of a server. */
export interface ServerPlace {
  readonly netns: NetNs;
  /** The first word of its answers. */
  readonly machine: string;
  readonly address: IpAddress;
  readonly port: number;
}

/** A TCP server; without `onConnection` it sends its line and closes. */
export async function serveTcp(
  { netns, machine, address, port }: ServerPlace,
  onConnection?: (socket: Socket) => void,
): Promise<Server> {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    if (onConnection === undefined) socket.end(lineOf(machine, socket.remoteAddress, address, port));
    else onConnection(socket);
  });
  server.listen({ fd: listenTcp(address, port, { netns }) });
  await once(server, "listening");
  return server;
}

/** A UDP server. It answers each datagram with its line, and with the rest of a datagram that is longer. */
export async function serveUdp({ netns, machine, address, port }: ServerPlace): Promise<UdpSocket> {
  const socket = createSocket({ type: address.family === 4 ? "udp4" : "udp6" });
  // With a descriptor it listens before `bind` returns.
  const listening = once(socket, "listening");
  socket.bind({ fd: bindUdp(address, port, { netns }) });
  await listening;
  socket.on("message", (bytes, client) => {
    const line = Buffer.from(`${lineOf(machine, client.address, address, port)}\n`);
    socket.send([line, bytes.subarray(line.length)], client.port, client.address);
  });
  return socket;
}

function lineOf(machine: string, client: string | undefined, address: IpAddress, port: number): string {
  return `${machine} ${client ?? ""} ${address} ${port}`;
}
