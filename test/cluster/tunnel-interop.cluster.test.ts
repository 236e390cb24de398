/**
 * Wire compatibility of the tunnel: server, agent and client, each ours, an independent one on `@grpc/grpc-js`, or
 * an external program, in every mix (docs/guides/tunnel-interop.md).
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { freePort } from "#test/ports";
import { peer, peersMissing } from "#test/real-api-server";
import { CLAIMS, LOSS_CLAIMS } from "#test/tunnel-claims";
import { TunnelPair } from "#test/tunnel-pair";
import type { Peer, RunningPeer, RunningServer } from "#test/tunnel-peer";
import { grpcAgent } from "#test/tunnel-peer-agent";
import { reusableClient, singleUseClient } from "#test/tunnel-peer-client";
import { ourClient } from "#test/tunnel-peer-ours";
import { agentProgram, fetchWithClient, serverProgram } from "#test/tunnel-peer-programs";
import { grpcServer } from "#test/tunnel-peer-server";

/** A command line from the environment, split at blanks. */
function commandOf(variable: string): readonly string[] | undefined {
  const words = process.env[variable]?.trim().split(/\s+/) ?? [];
  return words.length === 0 || words[0] === "" ? undefined : words;
}

const noPeers = peersMissing("proxy-server", "proxy-agent");
const konnectivity = (name: string): readonly string[] | undefined => (noPeers === false ? [peer(name)] : undefined);
const external = {
  server: commandOf("ISTHMUS_TUNNEL_SERVER") ?? konnectivity("proxy-server"),
  agent: commandOf("ISTHMUS_TUNNEL_AGENT") ?? konnectivity("proxy-agent"),
  client: commandOf("ISTHMUS_TUNNEL_CLIENT"),
};
if (external.server === undefined || external.agent === undefined) {
  test("tunnel interop: Konnectivity's server and agent in the matrix", { skip: noPeers }, () => undefined);
}
const SERVERS = [
  serverProgram(),
  grpcServer,
  ...(external.server === undefined ? [] : [serverProgram(external.server)]),
];
const CLIENTS = [ourClient, singleUseClient, reusableClient];

function agentsFor(server: Peer<RunningServer>): Peer<RunningPeer>[] {
  const others = external.agent === undefined ? [] : [agentProgram(external.agent)];
  return [agentProgram(), grpcAgent({ serverIsOurs: server.isOurs }), ...others];
}

for (const server of SERVERS) {
  for (const agent of agentsFor(server)) {
    describe(`tunnel interop: server ${server.name}, agent ${agent.name}`, () => {
      const pair = new TunnelPair(server, agent);
      before(() => pair.start());
      after(() => pair.stop());
      // A mix without anything of ours would show what others can do.
      for (const client of CLIENTS.filter(({ isOurs }) => isOurs || server.isOurs || agent.isOurs)) {
        for (const claim of [...CLAIMS, ...LOSS_CLAIMS]) {
          test(`client ${client.name}: ${claim.name}`, { timeout: 60_000 }, async (t) => {
            const running = await client.start(pair.places);
            t.after(() => running.kill());
            await claim.run({ pair, client: running, after: (cleanUp) => t.after(cleanUp) });
            const violations = [pair.server, pair.agent, running].flatMap((peer) => peer.violations);
            assert.deepEqual(violations, []);
          });
        }
      }
      const { client } = external;
      if (client !== undefined) {
        test("client external: fetches a page", { timeout: 60_000 }, async (t) => {
          const body = `page ${process.pid} of the tunnel`;
          const http = createServer((_request, response) => response.end(body));
          // Konnectivity's client accepts no ephemeral port.
          const port = await freePort();
          await new Promise<void>((resolve) => http.listen(port, "127.0.0.1", resolve));
          t.after(() => http.close());
          const { code, printed } = await fetchWithClient(client, {
            udsPath: pair.places.udsPath,
            port,
            path: "success",
          });
          assert.equal(code, 0, printed);
          assert.ok(printed.includes(body), printed);
        });
      }
    });
  }
}
