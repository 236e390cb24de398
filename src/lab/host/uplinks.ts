import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { IpAddress } from "#base/ip";
import { openNetNs } from "#kernel/netns";
import { bindUdp, listenTcp } from "#kernel/socket";
import { makeCertificates } from "#lab/certificates";
import { serveDns, serveFiles, type Zone } from "#lab/internet";
import type { OnLink, Topology, Uplinks } from "#lab/topology";
import { formatHostPort } from "#wire/http-connect";
import type { LabPaths } from "./lab-paths.ts";

const PROXY = { address: "127.0.0.1", port: 5443 } as const;
const SERVER = { name: "files.example", port: 443 } as const;
const DNS_PORT = 53;
const HTTP_PORT = 80;
/** CIDRs of the scenario's pods: packets from uplinks' addresses to them stay in the cluster. */
const POD_CIDRS = ["10.100.0.0/15", "fd10:100::/112", "fd10:101::/112"];
/** The time for which the proxy waits for its tunnels when it ends, in milliseconds. */
const DRAIN_MS = 1000;
/** Penalties are short and probes frequent, so that the lab soon notices that an uplink works again. */
const PENALTIES = { penaltyMs: 1000, penaltyMaxMs: 2000 } as const;
const PROBE = { intervalMs: 1000, timeoutMs: 500, failAfter: 3, recoverAfter: 2, maxCost: 0 } as const;

/** The uplinks of a lab as plain data: the proxy, its uplinks, and the server for downloads. */
export interface LabUplinks {
  /** The node with the uplinks. */
  readonly node: string;
  readonly netns: string;
  /** The address of the proxy inside the node. */
  readonly proxy: { readonly address: string; readonly port: number };
  readonly links: readonly {
    readonly name: string;
    readonly cost: number;
    /** The provider's namespace. */
    readonly netns: string;
    readonly addresses: readonly string[];
  }[];
  /** The HTTPS server of the internet, which each provider's DNS server knows by name. */
  readonly server: { readonly name: string; readonly addresses: readonly string[]; readonly port: number };
  /** The namespace of that server. */
  readonly internet: string;
  /** PEM file of the authority that signed the server's certificate. */
  readonly ca: string;
  readonly settings: string;
}

type Dir = Pick<LabPaths, "dir">;

/** Pure: the uplinks of a topology; `undefined` if no node has uplinks. */
export function planLabUplinks({ uplinks }: Topology, paths: Dir): LabUplinks | undefined {
  if (uplinks === undefined) return undefined;
  return {
    node: uplinks.node.name,
    netns: uplinks.node.netns,
    proxy: PROXY,
    links: uplinks.links.map(({ name, cost, netns, addresses }) => ({
      name,
      cost,
      netns,
      addresses: addresses.map(({ address }) => address.toString()),
    })),
    server: { ...SERVER, addresses: uplinks.internet.addresses.map(String) },
    internet: uplinks.internet.netns,
    ca: fileOf(paths, "ca.crt"),
    settings: fileOf(paths, "settings.json"),
  };
}

/** Pure: the flags of the node's `uplink-proxy`. */
export function uplinkProxyFlags(uplinks: LabUplinks, paths: Dir): readonly string[] {
  return [
    `--config=${uplinks.settings}`,
    `--control-socket=${fileOf(paths, "control.sock")}`,
    `--run-dir=${fileOf(paths, "run")}`,
    `--secrets-dir=${fileOf(paths, "secrets")}`,
    `--off-switch=${fileOf(paths, "off")}`,
    `--sentinel=${fileOf(paths, "runtime-env")}`,
  ];
}

/** Pure: the settings of the node's `uplink-proxy`, as an operator would write them. */
export function uplinkSettings({ links, internet }: Uplinks) {
  const ofFamily = (all: readonly OnLink[], family: 4 | 6): string | null =>
    all.find(({ address }) => address.family === family)?.address.toString() ?? null;
  return {
    version: 1,
    maxCost: Math.max(...links.map(({ cost }) => cost)),
    uplinks: links.map(({ name, cost, addresses, gateways }) => ({
      name,
      interface: name,
      cost,
      mode: "static",
      addresses: addresses.map(({ address, prefixLength }) => `${address}/${prefixLength}`),
      gateway4: ofFamily(gateways, 4),
      gateway6: ofFamily(gateways, 6),
      dnsServers: gateways.map(({ address }) => address.toString()),
    })),
    routing: { podCIDRs: POD_CIDRS, serviceCIDRs: [] },
    // The probe is an HTTP request, because a TCP handshake would not show that data is answered again.
    probe: { ...PROBE, targets: internet.addresses.slice(0, 1).map((host) => ({ type: "http", url: probeUrl(host) })) },
    selection: PENALTIES,
    // Clients of a lab end with it, or before the proxy is replaced, so there is little to wait for.
    limits: { drainMs: DRAIN_MS },
    metrics: true,
  };
}

/**
 * Writes the proxy's files and serves the internet: the file server in its namespace, a DNS server in the namespace of each provider.
 * Disposed with the lab. Rejects with `KernelError`.
 */
export async function openInternet(
  { uplinks }: Pick<Topology, "uplinks">,
  paths: Dir,
): Promise<AsyncDisposable | undefined> {
  if (uplinks === undefined) return undefined;
  const { ca, pairs } = makeCertificates("isthmus-lab-internet-ca", {
    server: {
      usages: ["serverAuth"],
      commonName: SERVER.name,
      hosts: [SERVER.name, ...uplinks.internet.addresses.map(String)],
    },
  });
  mkdirSync(join(paths.dir, "uplinks"), { recursive: true, mode: 0o700 });
  writeFileSync(fileOf(paths, "ca.crt"), ca, { mode: 0o600 });
  writeFileSync(fileOf(paths, "settings.json"), `${JSON.stringify(uplinkSettings(uplinks), undefined, 2)}\n`, {
    mode: 0o600,
  });
  await using servers = new AsyncDisposableStack();
  const fds = { https: listeners(uplinks, SERVER.port), http: listeners(uplinks, HTTP_PORT) };
  servers.use(serveFiles(pairs.server, fds));
  const zone: Zone = { [SERVER.name]: uplinks.internet.addresses };
  for (const { netns: name, gateways } of uplinks.links) {
    using netns = openNetNs({ name });
    for (const { address } of gateways) {
      servers.use(serveDns({ fd: bindUdp(address, DNS_PORT, { netns }), family: address.family }, zone));
    }
  }
  return servers.move();
}

function listeners({ internet }: Uplinks, port: number): readonly number[] {
  using netns = openNetNs({ name: internet.netns });
  return internet.addresses.map((address) => listenTcp(address, port, { netns }));
}

function probeUrl(host: IpAddress): string {
  return `http://${formatHostPort({ host: host.toString(), port: HTTP_PORT })}/who`;
}

function fileOf({ dir }: Dir, name: string): string {
  return join(dir, "uplinks", name);
}
