import { describeError } from "#base/errors";
import { Cidr, IpAddress } from "#base/ip";
import { openConntrack } from "#kernel/conntrack";
import { isKernelError, KernelError } from "#kernel/errors";
import type { LinkSpec } from "#kernel/link";
import { openKernel } from "#kernel/net";
import { GenericFamily, NETLINK, NetlinkConnection } from "#kernel/netlink";
import { createAnonymousNetNs } from "#kernel/netns";
import { NftError } from "#kernel/nft";
import { NFT_PROBES } from "./nft.ts";
import type { FeatureProbe, KernelFeature } from "./types.ts";

const LOCAL = { 4: IpAddress.parse("192.0.2.1"), 6: IpAddress.parse("2001:db8::1") } as const;
const REMOTE = { 4: IpAddress.parse("192.0.2.2"), 6: IpAddress.parse("2001:db8::2") } as const;

function linkProbe(spec: LinkSpec, affects: readonly string[]): FeatureProbe {
  return {
    name: spec.kind,
    affects,
    attempt(_ns, stack) {
      stack.links.create(spec);
      return `${spec.kind} links can be made`;
    },
  };
}

const PROBES: readonly FeatureProbe[] = [
  linkProbe({ kind: "veth", name: "p", peer: { name: "q" } }, ["pod network", "lab"]),
  linkProbe({ kind: "bridge", name: "p" }, ["lab"]),
  linkProbe({ kind: "vxlan", name: "p", external: true, port: 5555 }, ["egress (vxlan driver)"]),
  linkProbe({ kind: "tun", name: "p", mode: "tun" }, ["tunnel (tun mode)"]),
  {
    name: "macvlan",
    affects: ["VPC NICs"],
    attempt(_ns, stack) {
      const lower = stack.links.create({ kind: "bridge", name: "p" });
      stack.links.create({ kind: "macvlan", name: "q", parentIndex: lower.index, mode: "bridge" });
      return "macvlan links can be made";
    },
  },
  linkProbe({ kind: "dummy", name: "p" }, []),
  linkProbe({ kind: "ipip", name: "p", local: LOCAL[4], remote: REMOTE[4] }, ["egress (fou driver, IPv4)"]),
  linkProbe({ kind: "ip6tnl", name: "p", local: LOCAL[6], remote: REMOTE[6] }, ["egress (fou driver, IPv6)"]),
  {
    name: "fou",
    affects: ["egress (fou driver)"],
    attempt(_ns, stack) {
      stack.fou.add({ family: 4, port: 5555, ipProtocol: 4 });
      return "FOU ports can be opened";
    },
  },
  {
    name: "fou6",
    affects: ["egress (fou driver, IPv6)"],
    attempt(_ns, stack) {
      const encap = { type: "fou", sourcePort: 0, destinationPort: 5555 } as const;
      stack.links.create({ kind: "ip6tnl", name: "p", local: LOCAL[6], remote: REMOTE[6], encap });
      return "ip6tnl links can be carried by FOU";
    },
  },
  {
    name: "openvswitch",
    affects: ["VPC NICs (Open vSwitch)"],
    attempt(ns) {
      using connection = NetlinkConnection.open(ns, NETLINK.GENERIC);
      if (GenericFamily.find(connection, "ovs_datapath") !== undefined)
        return "the kernel has the Open vSwitch datapath";
      throw new KernelError(
        "unsupported",
        "this kernel has no Open vSwitch datapath; load it with modprobe openvswitch",
      );
    },
  },
  ...NFT_PROBES,
  {
    name: "conntrack netlink",
    affects: ["service proxy (UDP)", "egress"],
    attempt(ns) {
      using conntrack = openConntrack(ns);
      conntrack.list({ family: 4 });
      return "connections can be listed and deleted";
    },
  },
  {
    name: "policy rules",
    affects: ["pod network", "egress"],
    attempt(_ns, stack) {
      for (const family of [4, 6] as const) stack.rules.add({ family, priority: 2000, table: 116, fwmark: 1 });
      return "rules can be added in both families";
    },
  },
  ...([4, 6] as const).map(encapProbe),
  {
    name: "IPv6",
    affects: ["every feature in dual-stack and IPv6 clusters"],
    attempt(_ns, stack) {
      stack.addresses.add({ linkIndex: 1, address: LOCAL[6], noDad: true });
      return "addresses can be set";
    },
  },
  {
    name: "strict dump checks",
    affects: [],
    attempt(ns) {
      using connection = NetlinkConnection.open(ns, NETLINK.ROUTE);
      if (connection.strict) return "the kernel filters route lists by table, protocol and link";
      throw new KernelError("unsupported", "this kernel sends whole lists: large routing tables take longer");
    },
  },
];

function encapProbe(family: 4 | 6): FeatureProbe {
  return {
    name: family === 4 ? "encap ip" : "encap ip6",
    affects: [`egress (vxlan driver, IPv${family})`],
    attempt(_ns, stack) {
      const device = stack.links.create({ kind: "vxlan", name: "p", external: true, port: 5555, up: true });
      const encap = { type: family === 4 ? "ip" : "ip6", id: 7n, dst: REMOTE[family] } as const;
      const dst = Cidr.host(IpAddress.parse(family === 4 ? "198.51.100.1" : "2001:db8:1::1"));
      stack.routes.add({ dst, linkIndex: device.index, encap });
      return "routes can carry tunnel parameters";
    },
  };
}

/**
 * Tries every feature once, each in a temporary namespace that ends with the try. Takes some 100 ms; loads kernel
 * modules where the kernel can. Throws {@link KernelError} `not-permitted` without the privileges to try at all.
 */
export function probeKernel(): KernelFeature[] {
  return PROBES.map((probe) => {
    using ns = createAnonymousNetNs();
    using stack = openKernel().openStack(ns);
    try {
      return { name: probe.name, available: true, detail: probe.attempt(ns, stack), affects: probe.affects };
    } catch (error) {
      if (!isKernelError(error) && !(error instanceof NftError)) throw error;
      return { name: probe.name, available: false, detail: describeError(error), affects: probe.affects };
    }
  });
}
