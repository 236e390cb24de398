import { createServer, type Socket } from "node:net";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { resetSocket } from "#base/socket-reset";
import type { KubeConnection } from "#kube/client";
import { connectInside, InsideError, request } from "#lab/inside";
import type { LabNode } from "#lab/topology";
import type { LabTunnel } from "./tunnel.ts";

/** Timeout of one attempt, in milliseconds. */
const TRY_MS = 2000;

/** A connection to the API server from one node. */
export interface ApiRelay extends AsyncDisposable {
  readonly connection: KubeConnection;
}

/**
 * Relays connections of a node's kubelet to the API server, on the same path as the connections of that node's programs. The kubelet is not
 * a separate process, so each connection is made inside the node's namespace, to the bind address.
 */
export async function openApiRelay(node: LabNode, tunnel: LabTunnel, connection: KubeConnection): Promise<ApiRelay> {
  const place = placeOf(tunnel);
  const sockets = new Set<Socket>();
  const pass = async (from: Socket): Promise<void> => {
    sockets.add(from);
    from.once("error", () => from.destroy());
    from.once("close", () => sockets.delete(from));
    try {
      const to = await connectInside({ name: node.netns }, place, { timeoutMs: TRY_MS });
      sockets.add(to);
      to.once("close", () => {
        sockets.delete(to);
        from.destroy();
      });
      from.once("close", () => to.destroy());
      if (from.destroyed) to.destroy();
      from.pipe(to).pipe(from);
    } catch (error) {
      // The node cannot reach the API server now. The kubelet tries again.
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
  const url = new URL(connection.server);
  const tlsServerName = connection.tlsServerName ?? url.hostname.replaceAll(/[[\]]/g, "");
  url.host = `127.0.0.1:${bound.port}`;
  return {
    connection: { ...connection, server: url, tlsServerName },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => server.close(() => done()));
    },
  };
}

/** Waits until the agent of a node is connected to a server and accepts connections; the programs of the node need that. */
export async function untilTunnelReady(
  node: LabNode,
  tunnel: LabTunnel,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const isReady = async (): Promise<boolean> => {
    const options = { timeoutMs: TRY_MS, signal };
    const health = { address: IpAddress.parse("127.0.0.1"), port: tunnel.agentHealthPort };
    try {
      const socket = await connectInside({ name: node.netns }, health, options);
      return (await request(socket, { path: "/readyz", host: node.name }, options)).status === 200;
    } catch (error) {
      if (!(error instanceof InsideError)) throw error;
      return false;
    }
  };
  await poll(isReady, { until: (ready) => ready, everyMs: 20, signal, clock: systemClock });
}

function placeOf(tunnel: LabTunnel): { readonly address: IpAddress; readonly port: number } {
  return { address: IpAddress.parse(tunnel.bindAddresses[0] ?? ""), port: tunnel.apiServerPort };
}
