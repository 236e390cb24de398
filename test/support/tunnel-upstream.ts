/**
 * A server like Konnectivity's inside the control plane's namespace: it accepts agents, sends them its id and the server count, has no
 * capabilities, and records the packets of agents.
 *
 * ```ts
 * const upstream = await upstreamLikeServer(sides);
 * await sides.startAgent("node1", upstream);
 * ```
 */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createSecureServer, type Http2Session } from "node:http2";
import { IpAddress } from "#base/ip";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { freePort } from "#test/ports";
import type { Sides } from "#test/tunnel-sides";

/** The server that {@link upstreamLikeServer} starts. */
export interface UpstreamLikeServer {
  readonly agentPort: number;
  /** The packets of agents, in order. */
  readonly packets: readonly Buffer[];
  close(): void;
}

/** Starts it. Agents need a certificate of the bed's cluster. */
export async function upstreamLikeServer(sides: Sides): Promise<UpstreamLikeServer> {
  const file = (name: string): Buffer => readFileSync(sides.bed.path(name));
  const sessions = new Set<Http2Session>();
  const packets: Buffer[] = [];
  const server = createSecureServer({
    cert: file("server.crt"),
    key: file("server.key"),
    ca: file("ca.crt"),
    requestCert: true,
  });
  server.on("session", (session) => {
    sessions.add(session);
    session.on("error", () => session.destroy());
  });
  server.on("stream", (stream, headers) => {
    stream.on("error", () => stream.destroy());
    if (headers[":path"] !== "/AgentService/Connect") {
      stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "12" }, { endStream: true });
      return;
    }
    stream.respond({ ":status": 200, "content-type": "application/grpc", serverid: "upstream", servercount: "1" });
    stream.on("data", (chunk: Buffer) => packets.push(chunk));
  });
  const agentPort = await freePort();
  using netns = openNetNs({ name: sides.name("master") });
  await once(server.listen({ fd: listenTcp(IpAddress.parse("192.0.2.1"), agentPort, { netns }) }), "listening");
  return {
    agentPort,
    packets,
    close: () => {
      for (const session of sessions) session.destroy();
      server.close();
    },
  };
}
