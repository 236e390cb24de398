import type { Attributes, MessageWriter } from "#kernel/netlink";
import { LWT_IP, LWTUNNEL, RTA } from "./constants.ts";
import type { RouteEncap } from "./types.ts";

/** TUNNEL_KEY: without this flag the device would send no id. */
const TUNNEL_KEY = 0x0004;

/** RTA_ENCAP_TYPE and RTA_ENCAP of an `ip` or `ip6` lightweight tunnel; the two kinds share their attribute numbers. */
export function encodeEncap(writer: MessageWriter, encap: RouteEncap): void {
  writer.u16(RTA.ENCAP_TYPE, encap.type === "ip" ? LWTUNNEL.IP : LWTUNNEL.IP6);
  writer.nest(RTA.ENCAP, (data) => {
    if (encap.id !== undefined) data.be64(LWT_IP.ID, encap.id);
    if (encap.dst !== undefined) data.address(LWT_IP.DST, encap.dst);
    if (encap.src !== undefined) data.address(LWT_IP.SRC, encap.src);
    if (encap.ttl !== undefined) data.u8(LWT_IP.TTL, encap.ttl);
    const flags = encap.flags ?? (encap.id === undefined ? 0 : TUNNEL_KEY);
    if (flags !== 0) data.be16(LWT_IP.FLAGS, flags);
  });
}

/** Decodes the encap of a route; `undefined` if the route has none, or one of another kind. */
export function decodeEncap(attributes: Attributes): RouteEncap | undefined {
  const number = attributes.u16(RTA.ENCAP_TYPE);
  if (number !== LWTUNNEL.IP && number !== LWTUNNEL.IP6) return undefined;
  const data = attributes.nested(RTA.ENCAP);
  const [id, src, dst] = [data.be64(LWT_IP.ID), data.address(LWT_IP.SRC), data.address(LWT_IP.DST)];
  const [ttl, flags] = [data.u8(LWT_IP.TTL), data.be16(LWT_IP.FLAGS)];
  return {
    type: number === LWTUNNEL.IP ? "ip" : "ip6",
    ...(id === undefined ? {} : { id }),
    ...(src === undefined || src.isUnspecified ? {} : { src }),
    ...(dst === undefined || dst.isUnspecified ? {} : { dst }),
    ...(ttl === undefined || ttl === 0 ? {} : { ttl }),
    ...(flags === undefined || flags === 0 ? {} : { flags }),
  };
}
