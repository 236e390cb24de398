import { once } from "node:events";
import { createServer, type Server } from "node:net";
import type { AbortOptions } from "#base/async";
import { IpAddress } from "#base/ip";
import { openNetNs } from "#kernel/netns";
import { listenTcp, localEndpoint } from "#kernel/socket";
import type { LabState, LabTunnel } from "#lab/host";
import { connectThrough, InsideError, readAll, request } from "#lab/inside";
import type { PingSource } from "#lab/ping";
import type { Try } from "./tunnel-tries.ts";

/** The time that a try may take, in milliseconds: more than the tunnel's own deadlines, so that its reason is received. */
const TRY_MS = 10_000;
/** Ports for health and metrics of `coild` and `coil-router`, on every address of a node. */
const NODE_PORTS = [
  { program: "coild", port: 9384, path: "/metrics" },
  { program: "coild", port: 9385, path: "/healthz" },
  { program: "coil-router", port: 9388, path: "/metrics" },
  { program: "coil-router", port: 9389, path: "/healthz" },
] as const;
/** One port, with its address and program. */
export const A_NODE_PORT = NODE_PORTS[1].port;

/** Tries from the control plane to the ports of nodes, by the nodes' addresses. */
export function nodePortTries(nodes: LabState["nodes"], tunnel: LabTunnel, { signal }: AbortOptions): readonly Try[] {
  return nodes.flatMap((node) =>
    node.addresses.flatMap((address) =>
      NODE_PORTS.map(({ program, port, path }) => ({
        name: `control plane -> ${program} of ${node.name} (${address} port ${port})`,
        run: async () => {
          const options = { timeoutMs: TRY_MS, signal };
          const place = { address: IpAddress.parse(address), port };
          const socket = await connectThrough(tunnel.frontend, place, options);
          const { status } = await request(socket, { path, host: node.name }, options);
          if (status !== 200) throw new InsideError("failed", `GET ${path}: the answer has status ${status}`);
        },
      })),
    ),
  );
}

/** A server in each pod that sends the pod's name, until it is disposed. */
export class PodNameServers implements AsyncDisposable {
  readonly #servers: Server[] = [];
  readonly #tries: Try[] = [];

  private constructor() {}

  /** Listens on every address of every pod, at ports that the kernel chooses. Rejects with `KernelError`. */
  static async open(pods: readonly PingSource[], tunnel: LabTunnel, { signal }: AbortOptions): Promise<PodNameServers> {
    const servers = new PodNameServers();
    try {
      for (const pod of pods) for (const address of pod.addresses) await servers.#listen(pod, address, tunnel, signal);
      return servers;
    } catch (error) {
      await servers[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Tries from the control plane to each server. */
  get tries(): readonly Try[] {
    return this.#tries;
  }

  async #listen(
    pod: PingSource,
    address: IpAddress,
    tunnel: LabTunnel,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { fd, port } = openListener(pod.netns, address);
    const words = `${pod.name} at ${address}`;
    const server = createServer((socket) => {
      // A client that closes early does not need the name.
      socket.on("error", () => socket.destroy());
      socket.end(words);
    });
    this.#servers.push(server);
    await once(server.listen({ fd }), "listening");
    this.#tries.push({
      name: `control plane -> ${pod.name} (${address} port ${port})`,
      run: async () => {
        const options = { timeoutMs: TRY_MS, signal };
        const received = await readAll(await connectThrough(tunnel.frontend, { address, port }, options), options);
        if (received !== words) throw new InsideError("failed", `received ${JSON.stringify(received)}, not ${words}`);
      },
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#servers.map((server) => new Promise<void>((done) => server.close(() => done()))));
  }
}

function openListener(path: string, address: IpAddress): { readonly fd: number; readonly port: number } {
  using netns = openNetNs({ path });
  const fd = listenTcp(address, 0, { netns });
  return { fd, port: localEndpoint(fd).port };
}
