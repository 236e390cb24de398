/**
 * Network interfaces of one namespace: veth, bridge, vxlan, tun, macvlan, dummy, ipip, ip6tnl.
 *
 * Owns: {@link LinkPort} and {@link NetnsIdPort}, their rtnetlink encoding, the checks before it. Does not know:
 * addresses and routes on the links, and the owner of a link (features mark it by aliases).
 *
 * ```ts
 * const host = stack.links.create({ kind: "veth", name: "veth0a1b2c3d", alias: "COIL:default:1234:eth0", up: true,
 *   peer: { name: "eth0", netns: pod, up: true } });
 * ```
 */
export { checkAlias, checkGroup, checkLinkName } from "./check.ts";
export { DELETION_GROUPS } from "./constants.ts";
export { decodeLink } from "./decode.ts";
export { MAX_DELETE_MANY } from "./delete-many.ts";
export { openNetnsIdPort } from "./netns-id.ts";
export { openLinkPort } from "./port.ts";
export type {
  DeletableLink,
  Link,
  LinkChange,
  LinkDetails,
  LinkKind,
  LinkPort,
  LinkRef,
  LinkSpec,
  NetnsIdPort,
} from "./types.ts";
