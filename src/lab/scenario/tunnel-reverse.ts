import type { AbortOptions } from "#base/async";
import { IpAddress } from "#base/ip";
import type { NetNsRef } from "#kernel/netns";
import type { KubeConnection } from "#kube/client";
import type { LabState, LabTunnel } from "#lab/host";
import { connectInside, establishedIn, InsideError, request, secure, socketsOf } from "#lab/inside";
import type { ObservedCluster } from "./observe.ts";
import type { TunnelReport } from "./tunnel-report.ts";
import type { Try } from "./tunnel-tries.ts";

/** The time that a try may take, in milliseconds. */
const TRY_MS = 5000;
/** Timeout of a connection through the firewall, which drops packets, in milliseconds. */
const DROPPED_MS = 1000;

/** Tries from each node, and from its pod with the most families, to the API server by every bind address of their families. */
export function reverseTries(
  { nodes, tunnel }: { readonly nodes: LabState["nodes"]; readonly tunnel: LabTunnel },
  cluster: ObservedCluster,
  connection: KubeConnection,
  { signal }: AbortOptions,
): readonly Try[] {
  const sources = nodes.flatMap((node) => {
    const pods = cluster.pods.filter((pod) => pod.node === node.name);
    const [pod] = pods.toSorted((a, b) => b.addresses.length - a.addresses.length);
    const own = { name: node.name, netns: { name: node.netns }, addresses: node.addresses.map(IpAddress.parse) };
    return pod === undefined ? [own] : [own, { ...pod, netns: { path: pod.netns } }];
  });
  const bindAddresses = tunnel.bindAddresses.map((text) => IpAddress.parse(text));
  return sources.flatMap(({ name, netns, addresses }) =>
    bindAddresses
      .filter(({ family }) => addresses.some((address) => address.family === family))
      .map((address) => ({
        name: `${name} -> API server by ${address}`,
        run: () =>
          requestVersion(netns, { address, port: tunnel.apiServerPort }, connection, { timeoutMs: TRY_MS, signal }),
      })),
  );
}

type Destination = Parameters<typeof connectInside>[1];

async function requestVersion(
  netns: NetNsRef,
  place: Destination,
  connection: KubeConnection,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<void> {
  const { headers, ca, cert, key } = await connection.credentials(options);
  const host = connection.tlsServerName ?? place.address.toString();
  const plain = await connectInside(netns, place, options);
  const isPlain = connection.server.protocol === "http:";
  const trust = { host, ca, cert, key, isUnverified: connection.insecureSkipTlsVerify };
  const socket = isPlain ? plain : await secure(plain, trust, options);
  const path = `${connection.server.pathname.replace(/\/$/, "")}/version`;
  const answer = await request(socket, { path, host, headers }, options);
  if (answer.status !== 200 || !answer.body.includes("gitVersion")) {
    throw new InsideError("failed", `GET /version: the answer is ${answer.status} ${answer.body.slice(0, 100)}`);
  }
}

/**
 * Tries connections without the tunnel: from nodes to the control plane's ports except the agents', and from the control plane to a port of
 * each node.
 */
export async function tryWithoutTunnel(
  { nodes, tunnel }: { readonly nodes: LabState["nodes"]; readonly tunnel: LabTunnel },
  nodePort: number,
  { signal }: AbortOptions,
): Promise<TunnelReport["direct"]> {
  const inward = nodes.flatMap((node) =>
    tunnel.controlPlane.flatMap((address) =>
      [tunnel.apiServerPort, tunnel.serverHealthPort].map((port) => ({
        from: node.name,
        netns: node.netns,
        address,
        port,
      })),
    ),
  );
  const outward = nodes.flatMap((node) =>
    node.addresses.map((address) => ({ from: "control plane", netns: tunnel.netns, address, port: nodePort })),
  );
  const ways = [...inward, ...outward];
  const open = await Promise.all(
    ways.map(async ({ from, netns, address, port }) => {
      const place = { address: IpAddress.parse(address), port };
      const isOpen = await connects({ name: netns }, place, { timeoutMs: DROPPED_MS, signal });
      return isOpen ? [`${from} -> ${address} port ${port} is open`] : [];
    }),
  );
  const found = open.flat();
  return { tried: ways.length, refused: ways.length - found.length, open: found };
}

async function connects(
  netns: NetNsRef,
  place: Destination,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<boolean> {
  try {
    (await connectInside(netns, place, options)).destroy();
    return true;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return false;
  }
}

/**
 * The programs of nodes that have a connection to a bind address now. The tunnel's own programs need none, and the uplink proxy uses no
 * API server. The kubelets are in the host process, with their connections in the nodes' namespaces.
 */
export function connectedPrograms(state: LabState, tunnel: LabTunnel): TunnelReport["programs"] {
  const binds = tunnel.bindAddresses.map((text) => IpAddress.parse(text));
  const isOfNode = ({ name }: LabState["children"][number]): boolean =>
    !/^(proxy-server|proxy-agent|uplink-proxy)/.test(name);
  const missing: string[] = [];
  let wanted = 0;
  const expect = (what: string, holder: number, inside: number): void => {
    wanted += 1;
    const own = socketsOf(holder);
    const talks = establishedIn(inside).some(
      ({ inode, remote, remotePort }) =>
        own.has(inode) && remotePort === tunnel.apiServerPort && binds.some((bind) => bind.equals(remote)),
    );
    if (!talks) missing.push(what);
  };
  for (const child of state.children.filter(isOfNode)) expect(child.name, child.pid, child.pid);
  for (const node of state.nodes) {
    const inside = state.children.find(({ name }) => name === `coild-${node.name}`);
    expect(`kubelet-${node.name}`, state.pid, inside?.pid ?? 0);
  }
  return { wanted, connected: wanted - missing.length, missing };
}
