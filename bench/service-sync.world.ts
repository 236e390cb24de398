/** Parts that both sides of service-sync share: Services, and a namespace with servers in it. */
import { once } from "node:events";
import { createServer, Socket } from "node:net";
import { Cidr, IpAddress } from "#base/ip";
import { type NetNs, openKernel } from "#kernel/net";
import { listenTcp, openTcp } from "#kernel/socket";

/** The number of endpoints of each Service by default; at most {@link MAX_ENDPOINTS}. */
export const ENDPOINTS = 10;
const MAX_ENDPOINTS = 15;
export const SERVICE_PORT = 80;
export const TARGET_PORT = 8080;
/** Services whose endpoints really answer, unless there are fewer. */
const REAL = 100;
const CONNECTS = 2000;

/** The address of a Service: 172.30.0.1 and the following addresses. */
export function clusterIP(service: number): IpAddress {
  return IpAddress.fromValue(4, IpAddress.parse("172.30.0.0").value + BigInt(service + 1));
}

/**
 * Addresses that answer for the first Services, and do not answer for the other Services; another `turn` gives other addresses for the same
 * Service.
 */
export function endpointAddresses(service: number, turn = 0, count = ENDPOINTS): IpAddress[] {
  const base =
    service < REAL ? IpAddress.parse("10.180.0.1").value : IpAddress.parse("10.192.0.0").value + BigInt(service * 16);
  return Array.from({ length: count }, (_, at) =>
    IpAddress.fromValue(4, base + BigInt(at === 0 && turn % 2 === 1 ? count : at)),
  );
}

/** A namespace where the real endpoints live on loopback. */
export async function openWorld(name: string): Promise<{ readonly netns: NetNs } & AsyncDisposable> {
  const kernel = openKernel();
  const netns = kernel.createNetNs(name);
  using stack = kernel.openStack(netns);
  const lo = stack.links.get({ name: "lo" });
  if (lo === undefined) throw new Error("there is no loopback");
  stack.links.set(lo.index, { up: true });
  for (let at = 0; at <= MAX_ENDPOINTS; at += 1) {
    const address = IpAddress.fromValue(4, IpAddress.parse("10.180.0.1").value + BigInt(at));
    stack.addresses.replace({ linkIndex: lo.index, address, prefixLength: 32 });
  }
  stack.routes.replace({ dst: Cidr.parse("0.0.0.0/0"), linkIndex: lo.index, scope: "link" });
  const server = createServer((socket) => socket.on("error", () => socket.destroy()).end("."));
  server.listen({ fd: listenTcp(IpAddress.parse("0.0.0.0"), TARGET_PORT, { netns }) });
  await once(server, "listening");
  return {
    netns,
    [Symbol.asyncDispose]: async () => {
      server.close();
      netns[Symbol.dispose]();
      kernel.deleteNetNs(name);
    },
  };
}

/** Microseconds from the first packet to the first byte, for connections through the Services that answer, in turns. */
export async function firstPackets(netns: NetNs, services: number, connects = CONNECTS): Promise<number[]> {
  const took: number[] = [];
  for (let at = 0; at < connects; at += 1) {
    const socket = new Socket({ fd: openTcp(4, { netns }) });
    const startedAt = performance.now();
    socket.connect({ host: clusterIP(at % Math.min(REAL, services)).toString(), port: SERVICE_PORT });
    await once(socket, "data", { signal: AbortSignal.timeout(5000) });
    took.push((performance.now() - startedAt) * 1000);
    socket.destroy();
  }
  return took;
}
