import { Cidr, IpAddress } from "#base/ip";
import type { ServerAddress } from "#kube/client";
import { fitShape, type Shape } from "#kube/shape";

/** The maximum number of servers that are used. */
export const MAX_SERVERS = 16;
const MAX_PORT = 65_535;

const SLICE_SHAPE: Shape = {
  fields: {
    addressType: "string",
    endpoints: { list: { fields: { addresses: { list: "string" }, conditions: { fields: { ready: "boolean" } } } } },
    ports: { list: { fields: { name: "string", port: "number", protocol: "string" } } },
  },
};

/** An EndpointSlice of this shape. */
interface ServerSlice {
  readonly endpoints?: readonly {
    readonly addresses?: readonly string[];
    readonly conditions?: { readonly ready?: boolean };
  }[];
  readonly ports?: readonly { readonly name?: string; readonly port?: number; readonly protocol?: string }[];
}

/** Several of them would be multicast addresses of a group, none is an address of one machine. */
const NOBODY = ["224.0.0.0/4", "ff00::/8"].map((text) => Cidr.parse(text));

/**
 * The servers that the slice names, at most {@link MAX_SERVERS}, each once and in the order of their addresses; endpoints that are not ready, and what is no address of a machine, are left out. Empty if the
 * object is not such a slice. Pure.
 */
export function serversOf(slice: unknown): readonly ServerAddress[] {
  if (fitShape(slice, SLICE_SHAPE) !== undefined) return [];
  const { endpoints = [], ports = [] } = slice as ServerSlice;
  const usable = ports.filter(({ port, protocol = "TCP" }) => protocol === "TCP" && isPort(port));
  const port = (usable.find(({ name }) => name === "https") ?? usable[0])?.port;
  if (port === undefined) return [];
  const texts = endpoints.flatMap(({ addresses = [], conditions }) => (conditions?.ready === false ? [] : addresses));
  return bounded(texts.flatMap((text) => addressOf(text) ?? []).map((address) => ({ address, port })));
}

/** The text of a server, as in a file: `10.0.0.1:6443`, `[fd00::1]:6443`. */
export function textOf({ address, port }: ServerAddress): string {
  return address.family === 6 ? `[${address}]:${port}` : `${address}:${port}`;
}

/** The servers of such texts, with the bounds of {@link serversOf}. Other values are left out. Pure. */
export function parseServers(texts: readonly unknown[]): readonly ServerAddress[] {
  return bounded(
    texts.flatMap((text) => {
      if (typeof text !== "string" || text.length > 64) return [];
      const at = text.lastIndexOf(":");
      const host = text.slice(0, at).replace(/^\[(.*)\]$/, "$1");
      const [address, port] = [addressOf(host), Number(text.slice(at + 1))];
      return address === undefined || !isPort(port) ? [] : [{ address, port }];
    }),
  );
}

function bounded(servers: readonly ServerAddress[]): readonly ServerAddress[] {
  const byText = new Map(servers.map((server) => [textOf(server), server]));
  return [...byText.values()].sort(inOrder).slice(0, MAX_SERVERS);
}

function inOrder({ address: a, port: p }: ServerAddress, { address: b, port: q }: ServerAddress): number {
  if (a.family !== b.family) return a.family - b.family;
  return a.value === b.value ? p - q : a.value < b.value ? -1 : 1;
}

function addressOf(text: string): IpAddress | undefined {
  const address = IpAddress.tryParse(text);
  if (address === undefined || address.isUnspecified || address.isLinkLocal) return undefined;
  return NOBODY.some((range) => range.contains(address)) ? undefined : address;
}

function isPort(port: number | undefined): port is number {
  return port !== undefined && Number.isInteger(port) && port >= 1 && port <= MAX_PORT;
}
