import { Cidr, IpAddress } from "#base/ip";
import { AF, Attributes, familyNumber, MessageWriter, malformed } from "#kernel/netlink";
import {
  PROTOCOL_BOOT,
  RTA,
  RTAX_MTU,
  RTM_F_CLONED,
  RTM_F_FIB_MATCH,
  RTM_F_LOOKUP_TABLE,
  RTNH_F,
  SCOPES,
  TABLE_MAIN,
  TYPES,
} from "./constants.ts";
import { decodeEncap, encodeEncap } from "./encap.ts";
import { decodeMultipath, decodeVia, encodeMultipath, writeGateway } from "./next-hop.ts";
import type { Route, RouteFilter, RouteKey, RouteQuery, RouteScope, RouteSpec, RouteType } from "./types.ts";

const SCOPE_NOWHERE = 255;

/** The default scope, as in iproute2: IPv6 has no scopes; for IPv4 it depends on the type and on the presence of a gateway. */
export function defaultRouteScope(spec: RouteSpec): RouteScope {
  if (spec.scope !== undefined) return spec.scope;
  if (spec.dst.family === 6) return "global";
  const type = spec.type ?? "unicast";
  if (type === "local") return "host";
  if (type === "broadcast" || type === "anycast") return "link";
  const direct = spec.gateway === undefined && spec.multipath === undefined;
  return type === "unicast" && direct && spec.linkIndex !== undefined ? "link" : "global";
}

/** The body of RTM_NEWROUTE. */
export function encodeRoute(spec: RouteSpec): Uint8Array {
  const writer = new MessageWriter();
  writer.raw(
    routeHeader({
      dst: spec.dst,
      table: spec.table ?? TABLE_MAIN,
      protocol: spec.protocol ?? PROTOCOL_BOOT,
      scope: scopeNumber(defaultRouteScope(spec)),
      type: typeNumber(spec.type ?? "unicast"),
      flags: spec.onlink === true ? RTNH_F.ONLINK : 0,
    }),
  );
  writeKey(writer, spec);
  if (spec.src !== undefined) writer.address(RTA.PREFSRC, spec.src);
  if (spec.mtu !== undefined) writer.nest(RTA.METRICS, (metrics) => metrics.u32(RTAX_MTU, spec.mtu ?? 0), false);
  if (spec.multipath !== undefined) writer.attribute(RTA.MULTIPATH, encodeMultipath(spec.dst.family, spec.multipath));
  if (spec.encap !== undefined) encodeEncap(writer, spec.encap);
  return writer.bytes;
}

/** The body of RTM_DELROUTE. */
export function encodeRouteKey(key: RouteKey): Uint8Array {
  const writer = new MessageWriter();
  writer.raw(
    routeHeader({
      dst: key.dst,
      table: key.table ?? TABLE_MAIN,
      protocol: key.protocol ?? 0,
      scope: SCOPE_NOWHERE, // any
      type: key.type === undefined ? 0 : typeNumber(key.type),
      flags: 0,
    }),
  );
  writeKey(writer, key);
  return writer.bytes;
}

/** The body of RTM_GETROUTE for one packet. */
export function encodeRouteQuery({ destination, source, mark }: RouteQuery): Uint8Array {
  const header = Buffer.alloc(12);
  header.writeUInt8(familyNumber(destination.family), 0);
  header.writeUInt8(destination.bits, 1);
  header.writeUInt8(source?.bits ?? 0, 2);
  // IPv6 always tells the table, and refuses to be asked for it.
  header.writeUInt32LE(destination.family === 4 ? RTM_F_LOOKUP_TABLE | RTM_F_FIB_MATCH : RTM_F_FIB_MATCH, 8);
  const writer = new MessageWriter().raw(header).address(RTA.DST, destination);
  if (source !== undefined) writer.address(RTA.SRC, source);
  if (mark !== undefined && mark !== 0) writer.u32(RTA.MARK, mark);
  return writer.bytes;
}

/** The body of a dump; the kernel applies the filter when it checks strictly. */
export function encodeRouteDump(filter: RouteFilter, strict: boolean): Uint8Array {
  const { family, table, protocol, linkIndex } = strict ? filter : { family: filter.family };
  const header = Buffer.alloc(12);
  header.writeUInt8(familyNumber(family), 0);
  header.writeUInt8(protocol ?? 0, 5);
  const writer = new MessageWriter().raw(header);
  if (table !== undefined) writer.u32(RTA.TABLE, table);
  if (linkIndex !== undefined) writer.u32(RTA.OIF, linkIndex);
  return writer.bytes;
}

interface Header {
  readonly dst: Cidr;
  readonly table: number;
  readonly protocol: number;
  readonly scope: number;
  readonly type: number;
  readonly flags: number;
}

/** `struct rtmsg`. */
function routeHeader(init: Header): Buffer {
  const header = Buffer.alloc(12);
  header.writeUInt8(familyNumber(init.dst.family), 0);
  header.writeUInt8(init.dst.prefixLength, 1);
  header.writeUInt8(init.table < 256 ? init.table : 0, 4); // larger numbers are only in RTA_TABLE
  header.writeUInt8(init.protocol, 5);
  header.writeUInt8(init.scope, 6);
  header.writeUInt8(init.type, 7);
  header.writeUInt32LE(init.flags, 8);
  return header;
}

function writeKey(writer: MessageWriter, key: RouteKey): void {
  if (key.dst.prefixLength > 0) writer.address(RTA.DST, key.dst.base);
  writer.u32(RTA.TABLE, key.table ?? TABLE_MAIN);
  if (key.gateway !== undefined) writeGateway(writer, key.dst.family, key.gateway);
  if (key.linkIndex !== undefined) writer.u32(RTA.OIF, key.linkIndex);
  if (key.metric !== undefined) writer.u32(RTA.PRIORITY, key.metric);
}

function scopeNumber(scope: RouteScope): number {
  if (typeof scope === "number") return scope;
  for (const [number, name] of SCOPES) if (name === scope) return number;
  throw new Error(`no number for scope ${scope}`);
}

function typeNumber(type: RouteType): number {
  return TYPES.indexOf(type);
}

/** Decodes RTM_NEWROUTE or RTM_DELROUTE; `undefined` for clones and families that are not IP. Throws {@link KernelError}. */
export function decodeRoute(payload: Buffer): Route | undefined {
  if (payload.length < 12) throw malformed(`a route message has only ${payload.length} bytes`);
  const familyByte = payload.readUInt8(0);
  const flags = payload.readUInt32LE(8);
  const type = TYPES[payload.readUInt8(7)];
  if ((familyByte !== AF.INET && familyByte !== AF.INET6) || (flags & RTM_F_CLONED) !== 0 || type === undefined)
    return undefined;
  const family = familyByte === AF.INET ? 4 : 6;
  const attributes = Attributes.parse(payload.subarray(12));
  const scope = payload.readUInt8(6);
  return {
    family,
    dst: decodeDst(family, attributes, payload.readUInt8(1)),
    table: attributes.u32(RTA.TABLE) ?? payload.readUInt8(4),
    protocol: payload.readUInt8(5),
    scope: SCOPES.get(scope) ?? scope,
    type,
    ...decodeWay(attributes, flags),
    ...decodeRest(attributes),
  };
}

function decodeDst(family: 4 | 6, attributes: Attributes, prefixLength: number): Cidr {
  const base = attributes.address(RTA.DST) ?? IpAddress.fromValue(family, 0n);
  if (base.family !== family || prefixLength > base.bits) throw malformed(`a route to ${base}/${prefixLength}`);
  return Cidr.of(base, prefixLength);
}

function decodeWay(attributes: Attributes, flags: number): Partial<Route> {
  const multipath = attributes.bytes(RTA.MULTIPATH);
  if (multipath !== undefined) return { multipath: decodeMultipath(multipath) };
  const linkIndex = attributes.u32(RTA.OIF);
  const gateway = attributes.address(RTA.GATEWAY) ?? decodeVia(attributes.bytes(RTA.VIA));
  return {
    ...(linkIndex === undefined ? {} : { linkIndex }),
    ...(gateway === undefined ? {} : { gateway }),
    ...((flags & RTNH_F.ONLINK) === 0 ? {} : { onlink: true }),
    ...((flags & RTNH_F.LINKDOWN) === 0 ? {} : { linkDown: true }),
  };
}

function decodeRest(attributes: Attributes): Partial<Route> {
  const src = attributes.address(RTA.PREFSRC);
  const metric = attributes.u32(RTA.PRIORITY);
  const mtu = attributes.nested(RTA.METRICS).u32(RTAX_MTU);
  const encap = decodeEncap(attributes);
  return {
    ...(src === undefined ? {} : { src }),
    ...(metric === undefined ? {} : { metric }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(encap === undefined ? {} : { encap }),
  };
}
