/**
 * Work that a device takes over from the kernel's stack, by the names that ethtool(8) prints, such as `tx-checksum-ip-generic`. Every method
 * throws {@link KernelError}: `no-device` when there is no such link, `unsupported` where the kernel has no ethtool over netlink (before 5.7).
 */
export interface OffloadPort {
  /** The features that are on, sorted. */
  active(linkIndex: number): string[];
  /** Turns features off; those that the kernel does not know, or that the device cannot turn off, are left as they are. */
  disable(linkIndex: number, features: readonly string[]): void;
}

/** Checksums of sent packets. A datapath in user space takes packets before the device would fill them in. */
export const TX_CHECKSUMS: readonly string[] = [
  "tx-checksum-ipv4",
  "tx-checksum-ip-generic",
  "tx-checksum-ipv6",
  "tx-checksum-sctp",
];
/** Checksums of received packets. */
export const RX_CHECKSUMS: readonly string[] = ["rx-checksum"];
/** Segmentation of large packets: tso, gso and ufo of ethtool(8). */
export const SEGMENTATION: readonly string[] = [
  "tx-tcp-segmentation",
  "tx-tcp-ecn-segmentation",
  "tx-tcp-mangleid-segmentation",
  "tx-tcp6-segmentation",
  "tx-generic-segmentation",
  "tx-udp-segmentation",
  "tx-udp-fragmentation",
];
