import type { Socket } from "node:net";

const clients = new WeakMap<Socket, string>();

/** A balancer has said whose connection this is: the `host:port` of its client. */
export function setClientBehind(socket: Socket, address: string): void {
  clients.set(socket, address);
}

/** The `host:port` of the client, if a balancer is in between that has said it. */
export function clientBehind(socket: Socket): string | undefined {
  return clients.get(socket);
}
