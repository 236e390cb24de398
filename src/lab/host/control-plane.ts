import { writeFileSync } from "node:fs";
import type { Logger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { startApiServer } from "#lab/api-server";
import type { Topology } from "#lab/topology";
import { openRelay } from "./relay.ts";
import type { LabPaths } from "./state.ts";

/** Where nodes reach the API server, on the fabric's gateway. */
const PORT = 6443;

/** The lab's API server, however it is had. */
export interface ControlPlane extends AsyncDisposable {
  readonly embedded: boolean;
  readonly description: string;
}

interface Options {
  readonly topology: Topology;
  readonly paths: LabPaths;
  readonly kubeconfig: string | undefined;
}

/** Starts the embedded API server, or leads the nodes to another one; writes both kubeconfigs. */
export async function openControlPlane(deps: { readonly log: Logger }, options: Options): Promise<ControlPlane> {
  const { kubeconfig } = options;
  return kubeconfig === undefined ? openEmbedded(deps, options) : openExternal({ ...options, kubeconfig });
}

async function openEmbedded(deps: { readonly log: Logger }, { topology, paths }: Options): Promise<ControlPlane> {
  const gateway = topology.gateways[0];
  if (gateway === undefined) throw new Error("a topology has a gateway");
  const token = Buffer.from(crypto.getRandomValues(new Uint8Array(24))).toString("base64url");
  const server = await startApiServer({
    // Loopback of the machine for people, the fabric's gateway for nodes.
    listen: [
      { host: "127.0.0.1", port: 0 },
      { fd: fabricListener(topology), host: gateway.toString() },
    ],
    tls: "self-signed",
    tokens: { [token]: { name: "isthmus-lab", groups: ["system:masters"] } },
    faultsOverHttp: true,
    log: deps.log.child("api-server"),
  });
  const [local, fabric] = server.urls;
  if (local === undefined || fabric === undefined) throw new Error("the API server has two listeners");
  writeConfig(paths.kubeconfig, server.kubeconfig({ server: local }));
  writeConfig(paths.nodeKubeconfig, server.kubeconfig({ server: fabric }));
  return {
    embedded: true,
    description: "the embedded API server is up",
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

async function openExternal({
  topology,
  paths,
  kubeconfig,
}: Options & { readonly kubeconfig: string }): Promise<ControlPlane> {
  const gateway = topology.gateways[0];
  if (gateway === undefined) throw new Error("a topology has a gateway");
  const relay = await openRelay({ kubeconfig, fd: fabricListener(topology), host: gateway, port: PORT });
  writeConfig(paths.kubeconfig, relay.localKubeconfig);
  writeConfig(paths.nodeKubeconfig, relay.nodeKubeconfig);
  return {
    embedded: false,
    description: `using the API server ${relay.server}`,
    [Symbol.asyncDispose]: () => relay[Symbol.asyncDispose](),
  };
}

/** A listening socket in the fabric, to be adopted. */
function fabricListener(topology: Topology): number {
  const gateway = topology.gateways[0];
  if (gateway === undefined) throw new Error("a topology has a gateway");
  using netns = openNetNs({ name: topology.fabric });
  return listenTcp(gateway, PORT, { netns });
}

function writeConfig(path: string, text: string): void {
  writeFileSync(path, text, { mode: 0o600 });
}
