import { MacAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import {
  AF,
  Attributes,
  familyNumber,
  MessageWriter,
  malformed,
  type NetlinkConnection,
  NLM_F,
  RTM,
} from "#kernel/netlink";
import type {
  Neighbour,
  NeighbourFilter,
  NeighbourKey,
  NeighbourPort,
  NeighbourSpec,
  NeighbourState,
} from "./types.ts";

/** Numbers of include/uapi/linux/neighbour.h. */
const NDA = { DST: 1, LLADDR: 2, IFINDEX: 8 } as const;
const NTF_PROXY = 0x8;
const STATES: Readonly<Record<NeighbourState, number>> = {
  none: 0,
  incomplete: 0x01,
  reachable: 0x02,
  stale: 0x04,
  delay: 0x08,
  probe: 0x10,
  failed: 0x20,
  noarp: 0x40,
  permanent: 0x80,
};

/** The neighbours of the namespace that `connection` is in. The connection stays the caller's. */
export function openNeighbourPort(connection: NetlinkConnection): NeighbourPort {
  return {
    list: (filter = {}) => listNeighbours(connection, filter),
    replace(spec) {
      checkNeighbour(spec);
      const flags = NLM_F.CREATE | NLM_F.REPLACE;
      connection.change({
        type: RTM.NEWNEIGH,
        flags,
        body: encodeNeighbour(spec),
        what: () => describeNeighbour("replace", spec),
      });
    },
    delete(key: NeighbourKey) {
      connection.change({
        type: RTM.DELNEIGH,
        body: encodeNeighbour(key),
        what: () => describeNeighbour("delete", key),
      });
    },
  };
}

/** `replace neighbour 10.0.0.1 on link 3`. */
export function describeNeighbour(verb: string, key: NeighbourKey): string {
  return `${verb} ${key.proxy === true ? "proxy " : ""}neighbour ${key.address} on link ${key.linkIndex}`;
}

/** Throws {@link KernelError} `invalid` for an entry that needs a MAC address and has none. */
export function checkNeighbour(spec: NeighbourSpec): void {
  const state = spec.state ?? "permanent";
  if (spec.proxy === true || spec.mac !== undefined || state === "noarp" || state === "none") return;
  throw new KernelError(
    "invalid",
    `Cannot ${describeNeighbour("replace", spec)}: a ${state} entry needs a MAC address`,
    {
      errno: "EINVAL",
    },
  );
}

function encodeNeighbour(spec: NeighbourSpec): Uint8Array {
  const header = neighbourHeader(familyNumber(spec.address.family), spec.linkIndex, spec.proxy === true);
  header.writeUInt16LE(STATES[spec.state ?? "permanent"], 8);
  const writer = new MessageWriter().raw(header).address(NDA.DST, spec.address);
  if (spec.mac !== undefined) writer.attribute(NDA.LLADDR, spec.mac.toBytes());
  return writer.bytes;
}

/** `struct ndmsg`. */
function neighbourHeader(family: number, linkIndex: number, proxy: boolean): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt8(family, 0);
  header.writeInt32LE(linkIndex, 4);
  header.writeUInt8(proxy ? NTF_PROXY : 0, 10);
  return header;
}

function listNeighbours(connection: NetlinkConnection, filter: NeighbourFilter): Neighbour[] {
  const { family, linkIndex, proxy = false } = filter;
  const writer = new MessageWriter();
  writer.raw(neighbourHeader(family === undefined ? AF.UNSPEC : familyNumber(family), 0, proxy));
  if (linkIndex !== undefined && connection.strict) writer.u32(NDA.IFINDEX, linkIndex);
  const request = { type: RTM.GETNEIGH, body: writer.bytes, what: () => "list neighbours" };
  return connection.dump(request, ({ type, payload }) => {
    const neighbour = type === RTM.NEWNEIGH ? decodeNeighbour(payload) : undefined;
    if (neighbour === undefined || neighbour.proxy !== proxy) return undefined;
    if (linkIndex !== undefined && neighbour.linkIndex !== linkIndex) return undefined;
    return family === undefined || neighbour.address.family === family ? neighbour : undefined;
  });
}

/** Decodes RTM_NEWNEIGH; `undefined` for bridge entries and the like. Throws {@link KernelError} `invalid`. */
export function decodeNeighbour(payload: Buffer): Neighbour | undefined {
  if (payload.length < 12) throw malformed(`a neighbour message has only ${payload.length} bytes`);
  const family = payload.readUInt8(0);
  if (family !== AF.INET && family !== AF.INET6) return undefined;
  const attributes = Attributes.parse(payload.subarray(12));
  const address = attributes.address(NDA.DST);
  if (address === undefined) return undefined;
  const mac = attributes.bytes(NDA.LLADDR);
  const number = payload.readUInt16LE(8);
  const state = (Object.keys(STATES) as NeighbourState[]).find((name) => STATES[name] === number) ?? "none";
  return {
    linkIndex: payload.readInt32LE(4),
    address,
    ...(mac?.length === 6 ? { mac: MacAddress.fromBytes(mac) } : {}),
    state,
    proxy: (payload.readUInt8(10) & NTF_PROXY) !== 0,
  };
}
