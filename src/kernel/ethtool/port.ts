import { isKernelError, KernelError } from "#kernel/errors";
import { Attributes, eachAttribute, GenericFamily, MessageWriter, NETLINK, NetlinkConnection } from "#kernel/netlink";
import type { OffloadPort } from "./types.ts";

/** Numbers of include/uapi/linux/ethtool_netlink.h. */
const MESSAGE = { FEATURES_GET: 11, FEATURES_SET: 12 } as const;
const HEADER = { DEV_INDEX: 1, FLAGS: 3 } as const;
const FEATURES = { HEADER: 1, WANTED: 3, ACTIVE: 4 } as const;
const BITSET = { NO_MASK: 1, BITS: 3 } as const;
const BIT = { ONE: 1, NAME: 2, VALUE: 3 } as const;
/** ETHTOOL_FLAG_OMIT_REPLY: the acknowledgement is enough. */
const OMIT_REPLY = 2;

/** The offloads of links of the namespace `ns`, which must stay open as long as the port is used. */
export function openOffloadPort(ns: { readonly fd: number }): OffloadPort {
  return {
    active: (linkIndex) =>
      withEthtool(ns, (ethtool) => {
        const body = new MessageWriter().nest(FEATURES.HEADER, (header) =>
          header.u32(HEADER.DEV_INDEX, linkIndex),
        ).bytes;
        const found = ethtool.get(
          MESSAGE.FEATURES_GET,
          body,
          () => `read the offloads of link ${linkIndex}`,
          decodeActive,
        );
        return found ?? [];
      }),
    disable: (linkIndex, features) =>
      withEthtool(ns, (ethtool) => {
        // One by one: the kernel refuses a whole request with a name that it does not know.
        for (const feature of features) turnOff(ethtool, linkIndex, feature);
      }),
  };
}

function turnOff(ethtool: GenericFamily, linkIndex: number, feature: string): void {
  const body = new MessageWriter()
    .nest(FEATURES.HEADER, (header) => header.u32(HEADER.DEV_INDEX, linkIndex).u32(HEADER.FLAGS, OMIT_REPLY))
    // A bit without the flag "value" is one to clear.
    .nest(FEATURES.WANTED, (set) =>
      set.nest(BITSET.BITS, (bits) => bits.nest(BIT.ONE, (bit) => bit.string(BIT.NAME, feature))),
    ).bytes;
  try {
    ethtool.change(MESSAGE.FEATURES_SET, body, () => `turn ${feature} of link ${linkIndex} off`);
  } catch (error) {
    if (!isKernelError(error, "invalid") && !isKernelError(error, "unsupported")) throw error;
  }
}

/** The names in the answer's set of active features. Throws {@link KernelError} `invalid` for malformed bytes. */
export function decodeActive(payload: Buffer): string[] {
  const set = Attributes.parse(payload).nested(FEATURES.ACTIVE);
  // Without a mask, only the bits that are on are listed.
  const onlyOn = set.has(BITSET.NO_MASK);
  const names: string[] = [];
  for (const one of eachAttribute(set.bytes(BITSET.BITS) ?? Buffer.alloc(0))) {
    const bit = Attributes.parse(one.payload);
    const name = bit.string(BIT.NAME);
    if (name !== undefined && (onlyOn || bit.has(BIT.VALUE))) names.push(name);
  }
  return names.sort();
}

function withEthtool<T>(ns: { readonly fd: number }, use: (ethtool: GenericFamily) => T): T {
  using connection = NetlinkConnection.open(ns, NETLINK.GENERIC);
  const ethtool = GenericFamily.find(connection, "ethtool");
  if (ethtool === undefined)
    throw new KernelError("unsupported", "Cannot change offloads: this kernel has no ethtool over netlink (Linux 5.7)");
  return use(ethtool);
}
