import { writeFileSync } from "node:fs";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { startApiServer } from "#lab/api-server";
import type { Topology } from "#lab/topology";
import { formatHostPort } from "#wire/http-connect";
import { accountOf, accountsOn } from "./accounts.ts";
import { ROUTER_USER } from "./egress.ts";
import { openExternalApiRelay } from "./external-api-relay.ts";
import { type KubeletTrust, kubeletAccess, makeKubeletTrust } from "./kubelets.ts";
import type { LabPaths } from "./lab-paths.ts";
import { LAB_RIGHTS } from "./rights.gen.ts";
import type { LabTunnel } from "./tunnel.ts";

/** The port at which nodes reach the API server on the fabric's gateway, if there is no tunnel. */
const PORT = 6443;

/** The lab's API server, embedded or external. */
export interface ControlPlane extends AsyncDisposable {
  readonly embedded: boolean;
  readonly description: string;
  /** Certificates of kubelets for commands of the API server; `undefined` for an external one, which does not know these kubelets. */
  readonly kubelets: KubeletTrust | undefined;
}

interface Options {
  readonly topology: Topology;
  readonly paths: LabPaths;
  readonly kubeconfig: string | undefined;
  /** The tunnel in front of the API server; the nodes' kubeconfig names its address. */
  readonly tunnel: LabTunnel | undefined;
}

/**
 * Starts the embedded API server, on which each program has exactly the rights of its manifest, or a relay to an external one, where all have those of
 * the given kubeconfig; writes all kubeconfigs.
 */
export async function openControlPlane(deps: { readonly log: Logger }, options: Options): Promise<ControlPlane> {
  const { kubeconfig } = options;
  return kubeconfig === undefined ? openEmbedded(deps, options) : openExternal(deps, { ...options, kubeconfig });
}

async function openEmbedded(
  deps: { readonly log: Logger },
  { topology, paths, tunnel }: Options,
): Promise<ControlPlane> {
  const access = planApiAccess(topology, tunnel);
  const kubelets = makeKubeletTrust(topology);
  const [token, routerToken] = [newToken(), newToken()];
  const programs = accountsOn(topology.nodes.map(({ name }) => name)).map((one) => ({ ...one, token: newToken() }));
  const server = await startApiServer({
    // Users connect to the machine's loopback address; nodes use the other addresses.
    listen: [
      { host: "127.0.0.1", port: 0 },
      ...access.listen.map((address) => ({ fd: listenerIn(access, address), host: address.toString() })),
    ],
    tls: "self-signed",
    tlsHosts: tunnel?.bindAddresses,
    tokens: {
      [token]: { name: "isthmus-lab", groups: ["system:masters"] },
      [routerToken]: ROUTER_USER,
      ...Object.fromEntries(programs.map((one) => [one.token, accountOf(one.program, one.node)])),
    },
    kubelets: kubeletAccess(kubelets, topology, tunnel),
    faultsOverHttp: true,
    log: deps.log.child("api-server"),
    clock: systemClock,
  });
  server.seed(LAB_RIGHTS);
  const [local] = server.urls;
  if (local === undefined) throw new Error("the API server has listeners");
  writeConfig(paths.kubeconfig, server.kubeconfig({ server: local, token }));
  const node = `https://${formatHostPort({ host: access.address.toString(), port: access.port })}`;
  writeConfig(paths.nodeKubeconfig, server.kubeconfig({ server: node, token }));
  writeConfig(paths.routerKubeconfig, server.kubeconfig({ server: node, token: routerToken }));
  for (const one of programs)
    writeConfig(paths.kubeconfigOf(one.program, one.node), server.kubeconfig({ server: node, token: one.token }));
  return {
    embedded: true,
    description: "the embedded API server is running",
    kubelets,
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

async function openExternal(
  deps: { readonly log: Logger },
  { topology, paths, kubeconfig, tunnel }: Options & { readonly kubeconfig: string },
): Promise<ControlPlane> {
  const access = planApiAccess(topology, tunnel);
  const [listen = access.address] = access.listen;
  const relay = await openExternalApiRelay(deps, {
    kubeconfig,
    folder: paths.dir,
    fd: listenerIn(access, listen),
    host: access.address,
    port: access.port,
  });
  writeConfig(paths.kubeconfig, relay.localKubeconfig);
  writeConfig(paths.nodeKubeconfig, relay.nodeKubeconfig);
  for (const { program, node } of accountsOn(topology.nodes.map(({ name }) => name)))
    writeConfig(paths.kubeconfigOf(program, node), relay.nodeKubeconfig);
  return {
    embedded: false,
    description: `using the API server ${relay.server}`,
    kubelets: undefined,
    [Symbol.asyncDispose]: () => relay[Symbol.asyncDispose](),
  };
}

/** The address and namespace at which nodes reach the API server. */
interface ApiAccess {
  /** The namespace in which the API server listens. */
  readonly netns: string;
  readonly listen: readonly IpAddress[];
  readonly port: number;
  /** The address in the nodes' kubeconfig. */
  readonly address: IpAddress;
}

/** Pure: directly at the fabric's gateway, or through the tunnel to the control plane's namespace. */
function planApiAccess(topology: Topology, tunnel: LabTunnel | undefined): ApiAccess {
  const gateway = topology.gateways[0];
  if (gateway === undefined) throw new Error("a topology has a gateway");
  if (tunnel === undefined) return { netns: topology.fabric, listen: [gateway], port: PORT, address: gateway };
  const [bind] = tunnel.bindAddresses;
  return {
    netns: tunnel.netns,
    listen: tunnel.controlPlane.map((address) => IpAddress.parse(address)),
    port: tunnel.apiServerPort,
    address: bind === undefined ? gateway : IpAddress.parse(bind),
  };
}

function newToken(): string {
  return Buffer.from(crypto.getRandomValues(new Uint8Array(24))).toString("base64url");
}

/** The descriptor of a new listening socket. The caller owns it. */
function listenerIn({ netns: name, port }: ApiAccess, address: IpAddress): number {
  using netns = openNetNs({ name });
  return listenTcp(address, port, { netns });
}

function writeConfig(path: string, text: string): void {
  writeFileSync(path, text, { mode: 0o600 });
}
