import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { IpAddress, type IpFamily } from "#base/ip";
import { makeCertificates } from "#lab/certificates";
import type { LabNode, Topology } from "#lab/topology";
import { formatHostPort } from "#wire/http-connect";
import type { LabPaths } from "./lab-paths.ts";

/** The API server's addresses on every node; the agent of each node listens there. */
const BIND_ADDRESSES = { 4: IpAddress.parse("10.255.255.1"), 6: IpAddress.parse("fd10:255:255::1") } as const;
const GATE = "--feature-gates=EnableClusterToMasterTraffic=true";
/** Default ports of the programs. */
const PORTS = { apiServer: 6443, agents: 8091, serverHealth: 8092, agentHealth: 8093 } as const;

/** The tunnel of a lab as plain data, for its programs and for the checks of it. */
export interface LabTunnel {
  /** The namespace behind the firewall. */
  readonly netns: string;
  /** The API server there, on port {@link apiServerPort}; no node reaches it. */
  readonly controlPlane: readonly string[];
  readonly apiServerPort: number;
  /** The API server as nodes reach it, on the same port. */
  readonly bindAddresses: readonly string[];
  /** The UNIX socket on which the server accepts CONNECT for nodes and pods. */
  readonly frontend: string;
  readonly agentPort: number;
  readonly serverHealthPort: number;
  readonly agentHealthPort: number;
}

/** A program of the tunnel. */
export interface TunnelProgram {
  readonly name: string;
  readonly program: "proxy-server" | "proxy-agent";
  readonly netns: string;
  readonly flags: readonly string[];
}

/** Pure: the tunnel of a topology; `undefined` if the control plane is not separated from the nodes. */
export function planTunnel(topology: Topology, paths: Pick<LabPaths, "dir">): LabTunnel | undefined {
  const { controlPlane } = topology;
  return controlPlane === undefined ? undefined : tunnelAt(controlPlane, topology, paths);
}

/** Pure: a tunnel of a topology whose nodes reach the API server without it too; its server is where the controllers are. */
export function planSpareTunnel(topology: Topology, paths: Pick<LabPaths, "dir">): LabTunnel {
  return tunnelAt({ netns: topology.fabric, addresses: topology.gateways }, topology, paths);
}

function tunnelAt(
  { netns, addresses }: { readonly netns: string; readonly addresses: readonly IpAddress[] },
  { families }: Topology,
  paths: Pick<LabPaths, "dir">,
): LabTunnel {
  return {
    netns,
    controlPlane: addresses.map(String),
    apiServerPort: PORTS.apiServer,
    bindAddresses: families.map((family: IpFamily) => BIND_ADDRESSES[family].toString()),
    frontend: join(paths.dir, "control-plane", "frontend.sock"),
    agentPort: PORTS.agents,
    serverHealthPort: PORTS.serverHealth,
    agentHealthPort: PORTS.agentHealth,
  };
}

/** Pure: the server and an agent for each node, with the flags of a real cluster. */
export function tunnelPrograms(
  tunnel: LabTunnel,
  topology: Topology,
  paths: Pick<LabPaths, "dir">,
): readonly TunnelProgram[] {
  const apiServer = formatHostPort({ host: tunnel.controlPlane[0] ?? "", port: tunnel.apiServerPort });
  const file = (name: string): string => fileOf(paths, name);
  const server: TunnelProgram = {
    name: "proxy-server",
    program: "proxy-server",
    netns: tunnel.netns,
    flags: [
      GATE,
      `--allowed-destination=${apiServer}`,
      "--mode=http-connect",
      `--uds-name=${tunnel.frontend}`,
      "--server-port=0",
      `--cluster-cert=${file("server.crt")}`,
      `--cluster-key=${file("server.key")}`,
      `--cluster-ca-cert=${file("ca.crt")}`,
      "--proxy-strategies=destHost,default",
      "--server-id=control-plane",
      "--keepalive-time=30s",
    ],
  };
  const agents = topology.nodes.map(
    (node): TunnelProgram => ({
      name: `proxy-agent-${node.name}`,
      program: "proxy-agent",
      netns: node.netns,
      flags: [
        GATE,
        `--target=${tunnel.apiServerPort}:${apiServer}`,
        `--bind-address=${tunnel.bindAddresses.join(",")}`,
        `--proxy-server-host=${tunnel.controlPlane[0]}`,
        `--ca-cert=${file("ca.crt")}`,
        `--agent-cert=${file("agent.crt")}`,
        `--agent-key=${file("agent.key")}`,
        `--agent-id=${node.name}`,
        `--agent-identifiers=${identifiersOf(node)}`,
        "--keepalive-time=30s",
        // All programs of a node end at the same moment, so there is nothing to wait for.
        "--drain-timeout=1s",
      ],
    }),
  );
  return [server, ...agents];
}

/** Certificates of the tunnel's own authority, in the files that {@link tunnelPrograms} name. */
export function writeTunnelFiles(tunnel: LabTunnel, paths: Pick<LabPaths, "dir">): void {
  const { ca, pairs } = makeCertificates("isthmus-lab-tunnel-ca", {
    server: { usages: ["serverAuth"], commonName: "proxy-server", hosts: tunnel.controlPlane },
    agent: { usages: ["clientAuth"], commonName: "proxy-agent", hosts: [] },
  });
  const write = (name: string, text: string): void => writeFileSync(fileOf(paths, name), text, { mode: 0o600 });
  mkdirSync(dirname(fileOf(paths, "ca.crt")), { recursive: true, mode: 0o700 });
  write("ca.crt", ca);
  for (const [name, { cert, key }] of Object.entries(pairs)) {
    write(`${name}.crt`, cert);
    write(`${name}.key`, key);
  }
}

function fileOf({ dir }: Pick<LabPaths, "dir">, name: string): string {
  return join(dir, "control-plane", name);
}

/** Identifiers that send connections to a node's addresses through that node's agent. */
function identifiersOf(node: LabNode): string {
  return [`host=${node.name}`, ...node.addresses.map((one) => `ipv${one.family}=${one}`)].join("&");
}
