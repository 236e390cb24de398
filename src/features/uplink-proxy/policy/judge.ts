import { Cidr, type IpAddress } from "#base/ip";
import type { ListenerSettings, Settings, Snapshot } from "#base/uplink-model";
import { embeddedV4, unmapped } from "./embedded.ts";

/** The verdict on a destination (docs/spec/uplink-proxy.md#9.1.3, #9.2, #10.3). */
export type Judgement = "uplink" | "direct" | "denied";

/** Destinations that are denied to pods in every cluster. */
const NEVER_FOR_PODS = [
  "0.0.0.0/8", // this host; Linux takes 0.0.0.0 for loopback
  "127.0.0.0/8",
  "169.254.0.0/16", // link-local, with the metadata services of clouds
  "224.0.0.0/4",
  "240.0.0.0/4", // reserved, with broadcast
  "::/128",
  "::1/128",
  "fe80::/10",
  "fec0::/10", // site-local, long deprecated
  "ff00::/8",
  "2001::/32", // Teredo carries an obfuscated IPv4 address
  "64:ff9b:1::/48", // NAT64 of the site's own, which may lead anywhere within
  // Metadata services of clouds that are not link-local: EC2 and GCE over IPv6, Azure, Alibaba, Oracle.
  "fd00:ec2::254/128",
  "fd20:ce::254/128",
  "168.63.129.16/32",
  "100.100.100.200/32",
  "192.0.0.192/32",
].map((text) => Cidr.parse(text));

/** Ports of the control plane: API servers, supervisor, kubelet, etcd (docs/spec/uplink-proxy.md#9.1.3). */
const CONTROL_PORTS: ReadonlySet<number> = new Set([6443, 9345, 10250, 2379, 2380]);

/** The input of the policy. */
export interface PolicyInput {
  readonly settings: Pick<Settings, "listeners" | "routing" | "cluster" | "allowLoopback" | "transparent">;
  readonly snapshot: Snapshot;
}

/** Judges all addresses of a destination together: one denied address denies all. Pure. */
export function judge(
  listener: Pick<ListenerSettings, "role" | "allowedPorts">,
  port: number,
  addresses: readonly IpAddress[],
  input: PolicyInput,
): Judgement {
  const [only] = addresses;
  const plain = addresses.length === 1 && only?.family === 4 ? addresses : addresses.map(unmapped);
  const isDenied = listener.role === "pod" ? isDeniedForPods : isDeniedForHost;
  if (listener.role === "pod" && !listener.allowedPorts.includes(port)) return "denied";
  if (plain.some((address) => isDenied(address, port, input))) return "denied";
  return plain.length > 0 && plain.every((address) => isBypassed(address, input.snapshot)) ? "direct" : "uplink";
}

/** Returns true if a pod may use the port at all; checked before a name is resolved. */
export function isAllowedPort(listener: Pick<ListenerSettings, "role" | "allowedPorts">, port: number): boolean {
  return listener.role !== "pod" || listener.allowedPorts.includes(port);
}

/** Returns true if the address belongs to this host, its cluster or its link, which no uplink leads to. */
function isBypassed(address: IpAddress, { bypass, localAddresses }: Snapshot): boolean {
  if (address.isLinkLocal) return true;
  return bypass.some((cidr) => cidr.contains(address)) || localAddresses.some((local) => local.equals(address));
}

/** Processes of the host may reach what they could reach without the proxy, except its own listeners. */
function isDeniedForHost(address: IpAddress, port: number, { settings }: PolicyInput): boolean {
  if (isOwnListener(address, port, settings)) return true;
  return (
    !settings.allowLoopback && [address, ...embeddedV4(address)].some((each) => each.isLoopback || isThisHost(each))
  );
}

function isDeniedForPods(address: IpAddress, port: number, input: PolicyInput): boolean {
  return [address, ...embeddedV4(address)].some((form) => isDeniedForm(form, port, input));
}

function isDeniedForm(address: IpAddress, port: number, { settings, snapshot }: PolicyInput): boolean {
  const { podCIDRs, serviceCIDRs } = settings.routing;
  if ([...NEVER_FOR_PODS, ...podCIDRs, ...serviceCIDRs].some((cidr) => cidr.contains(address))) return true;
  if (snapshot.localAddresses.some((local) => local.equals(address))) return true;
  if (snapshot.uplinks.some((uplink) => uplink.addresses.some((own) => own.address.equals(address)))) return true;
  return isOwnListener(address, port, settings) || isControlPort(address, port, settings.cluster);
}

function isControlPort(address: IpAddress, port: number, { nodeIP, prefixLength }: Settings["cluster"]): boolean {
  if (nodeIP === undefined || !CONTROL_PORTS.has(port)) return false;
  const isKnown = prefixLength !== undefined && prefixLength > 0;
  return Cidr.of(nodeIP, isKnown ? prefixLength : nodeIP.bits).contains(address);
}

function isOwnListener(address: IpAddress, port: number, settings: PolicyInput["settings"]): boolean {
  const { transparent } = settings;
  if (transparent.enabled && address.isLoopback && port === transparent.port) return true;
  return settings.listeners.some((listener) => listener.port === port && listener.address.equals(address));
}

/** 0.0.0.0/8 and ::, which connect to this host. */
function isThisHost(address: IpAddress): boolean {
  return address.family === 4 ? address.low32 >>> 24 === 0 : address.isUnspecified;
}
