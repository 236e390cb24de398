import * as v from "valibot";
import { ExpectedError } from "#base/errors";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import type { EgressNode, PodSpace } from "./state.ts";

/** `bad-answer`: this is not the state of a node's pods. */
export type EgressStateErrorCode = "bad-answer";

/** The state of a node's pods cannot be read. */
export class EgressStateError extends ExpectedError<EgressStateErrorCode> {
  override readonly name = "EgressStateError";
}

/** Text that `parse` understands. */
function parsed<T>(what: string, parse: (text: string) => T | undefined) {
  return v.pipe(
    v.string(),
    v.rawTransform<string, T>(({ dataset, addIssue, NEVER }) => {
      const value = parse(dataset.value);
      if (value !== undefined) return value;
      addIssue({ message: `${JSON.stringify(dataset.value.slice(0, 64))} is not ${what}` });
      return NEVER;
    }),
  );
}

const address = parsed("an address", (text) => IpAddress.tryParse(text));
const cidr = parsed("a CIDR", (text) => Cidr.tryParse(text));
const mac = parsed("a MAC address", (text) =>
  /^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(text) ? MacAddress.parse(text) : undefined,
);
const id = parsed("an identifier", (text) => (/^\d{1,20}$/.test(text) ? BigInt(text) : undefined));
const count = v.pipe(v.number(), v.integer(), v.minValue(0));
const family = v.picklist([4, 6]);

const tunnel = {
  local: v.optional(address),
  remote: v.optional(address),
  ttl: v.optional(count),
  external: v.optional(v.boolean()),
  encap: v.optional(v.object({ type: v.picklist(["fou", "gue"]), sourcePort: count, destinationPort: count })),
};
const details = v.variant("kind", [
  v.object({
    kind: v.literal("vxlan"),
    vni: v.optional(count),
    local: v.optional(address),
    remote: v.optional(address),
    port: v.optional(count),
    learning: v.optional(v.boolean()),
    external: v.optional(v.boolean()),
    udp6ZeroCsumRx: v.optional(v.boolean()),
  }),
  v.object({ kind: v.literal("ipip"), ...tunnel }),
  v.object({ kind: v.literal("ip6tnl"), ...tunnel }),
]);
const link = v.object({
  index: count,
  name: v.string(),
  kind: v.exactOptional(v.string()),
  mac: v.exactOptional(mac),
  mtu: count,
  up: v.boolean(),
  flags: count,
  details: v.exactOptional(details),
});
const rule = v.object({
  family,
  priority: count,
  table: count,
  action: v.picklist(["lookup", "goto", "nop", "blackhole", "unreachable", "prohibit"]),
  fwmark: v.exactOptional(count),
  fwmask: v.exactOptional(count),
  from: v.exactOptional(cidr),
  to: v.exactOptional(cidr),
  iif: v.exactOptional(v.string()),
  oif: v.exactOptional(v.string()),
  invert: v.exactOptional(v.boolean()),
  suppressPrefixLength: v.exactOptional(count),
  protocol: v.exactOptional(count),
  goto: v.exactOptional(count),
});
const encap = v.object({ type: v.picklist(["ip", "ip6"]), id: v.exactOptional(id), dst: v.exactOptional(address) });
const types = [
  ...(["unicast", "local", "broadcast", "anycast", "multicast"] as const),
  ...(["blackhole", "unreachable", "prohibit", "throw"] as const),
];
const route = v.object({
  dst: cidr,
  table: count,
  protocol: count,
  type: v.picklist(types),
  linkIndex: v.exactOptional(count),
  gateway: v.exactOptional(address),
  src: v.exactOptional(address),
  metric: v.exactOptional(count),
  mtu: v.exactOptional(count),
  encap: v.exactOptional(encap),
});
const states = [
  ...(["none", "incomplete", "reachable", "stale", "delay"] as const),
  ...(["probe", "failed", "noarp", "permanent"] as const),
];
const neighbour = v.object({ linkIndex: count, address, mac: v.exactOptional(mac), state: v.picklist(states) });
const net = v.object({
  settings: v.pipe(
    v.array(v.tuple([v.string(), v.nullable(v.string())])),
    v.transform((entries) => new Map(entries.map(([key, value]) => [key, value ?? undefined]))),
  ),
  fouPorts: v.array(v.object({ family, port: count, ipProtocol: count })),
  links: v.array(link),
  neighbours: v.array(neighbour),
  rules: v.array(rule),
  routes: v.array(route),
});
const spaceId = { path: v.string(), podUid: v.optional(v.string()), addresses: v.array(address) };
const uplinkRoute = v.object({
  dst: cidr,
  gateway: v.exactOptional(address),
  src: v.exactOptional(address),
  metric: v.exactOptional(count),
});
const listedRule = <const Kinds extends readonly string[]>(kinds: Kinds) =>
  v.object({ family, kind: v.picklist(kinds), comment: v.string() });
const space = v.object({
  ...spaceId,
  ifname: v.string(),
  mtuBytes: v.optional(count),
  net,
  uplinks: v.array(v.object({ name: v.string(), index: count, routes: v.array(uplinkRoute) })),
  marks: v.optional(v.array(listedRule(["input", "output"]))),
  router: v.optional(
    v.object({
      rules: v.array(listedRule(["masquerade", "invalid"])),
      flows: v.array(v.object({ source: address, entries: count })),
    }),
  ),
  unread: v.array(v.string()),
});
const nodeState = v.object({
  node: v.string(),
  clients: v.optional(
    v.object({
      driver: v.optional(v.picklist(["fou", "vxlan"])),
      fault: v.string(),
      port: count,
      inCluster: v.array(cidr),
      originatingOnly: v.boolean(),
      redirects: v.optional(v.array(v.object({ uid: v.string(), egress: v.string(), router: v.string() }))),
    }),
  ),
  spaces: v.array(space),
  clean: v.array(v.object(spaceId)),
  failed: v.array(v.object({ ...spaceId, why: v.string() })),
});

/** Pure: the state of a node as data that JSON can have. */
export function encodeNode({ spaces, ...others }: EgressNode): object {
  return { ...others, spaces: spaces.map(encodeSpace) };
}

function encodeSpace({ net: { settings, links, routes, ...rest }, ...others }: PodSpace): object {
  const hasDetails = ({ details: one }: (typeof links)[number]): boolean =>
    one !== undefined && ["vxlan", "ipip", "ip6tnl"].includes(one.kind);
  return {
    ...others,
    net: {
      ...rest,
      settings: [...settings].map(([key, value]) => [key, value ?? null]),
      links: links.map(({ details: one, ...link }) =>
        one !== undefined && hasDetails({ ...link, details: one }) ? { ...link, details: one } : link,
      ),
      routes: routes.map(({ encap: one, ...route }) =>
        one === undefined ? route : { ...route, encap: { ...one, id: one.id?.toString() } },
      ),
    },
  };
}

/** Pure: the reverse of {@link encodeNode}, of parsed JSON. Throws {@link EgressStateError}. */
export function decodeNode(json: unknown): EgressNode {
  const { success, output, issues } = v.safeParse(nodeState, json);
  if (success) return output;
  const [first] = issues;
  const where = first.path?.map(({ key }) => String(key)).join(".") ?? "";
  throw new EgressStateError("bad-answer", `the state of a node's pods is malformed: ${where}: ${first.message}`);
}
