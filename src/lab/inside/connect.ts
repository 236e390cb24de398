import { Socket } from "node:net";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import { type NetNsRef, openNetNs } from "#kernel/netns";
import { openTcp } from "#kernel/socket";
import { waitFor } from "./wait.ts";

/** A TCP destination. */
export interface Destination {
  readonly address: IpAddress;
  readonly port: number;
}

/**
 * A TCP connection made in a namespace. Rejects with `InsideError`, with the signal's reason, and with `KernelError` if
 * there is no such namespace.
 */
export async function connectInside(
  netns: NetNsRef,
  { address, port }: Destination,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<Socket> {
  const socket = new Socket({ fd: openIn(netns, address), allowHalfOpen: true });
  await waitFor(socket, `connecting to ${address} port ${port}`, options, (done, fail) => {
    socket.once("connect", () => done(undefined));
    socket.once("error", (error) => fail(describeError(error)));
    socket.connect({ host: address.toString(), port });
  });
  return socket;
}

function openIn(ref: NetNsRef, address: IpAddress): number {
  using netns = openNetNs(ref);
  return openTcp(address.family, { netns });
}
