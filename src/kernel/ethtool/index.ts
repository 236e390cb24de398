/**
 * Offloads of network devices: checksums and segmentation, through ethtool's netlink.
 *
 * Owns: {@link OffloadPort}, its encoding, the names of features that belong together. Does not know: why a device should do without them.
 *
 * ```ts
 * stack.offloads.disable(link.index, TX_CHECKSUMS);
 * ```
 */
export { decodeActive, openOffloadPort } from "./port.ts";
export { type OffloadPort, RX_CHECKSUMS, SEGMENTATION, TX_CHECKSUMS } from "./types.ts";
