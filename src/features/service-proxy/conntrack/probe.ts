import type { AbortOptions } from "#base/async";
import type { IpFamily } from "#base/ip";
import type { ConntrackPort } from "#kernel/conntrack";

/** An IP protocol number that IANA reserves: no flow has this protocol. */
const RESERVED_PROTOCOL = 255;

/** Reads connection tracking once, in slices, and changes nothing. Rejects with `KernelError` if the flows cannot be read. */
export async function probeConntrack(conntrack: ConntrackPort, family: IpFamily, options: AbortOptions): Promise<void> {
  await conntrack.delete({ family, protocol: RESERVED_PROTOCOL }, () => false, options);
}
