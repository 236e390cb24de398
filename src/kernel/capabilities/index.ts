/**
 * Capabilities of the calling thread (capabilities(7)): threads and processes that this thread makes later get at most its capabilities.
 *
 * Owns: reading and dropping capabilities. Does not know: their use.
 *
 * ```ts
 * keepCapabilities([CAP.NET_ADMIN]);
 * ```
 */
import { dropFromBoundingSet, effectiveCapabilities, setCapabilities } from "#kernel/ffi";

/** Bits of include/uapi/linux/capability.h. */
export const CAP = { SETPCAP: 8, NET_BIND_SERVICE: 10, NET_ADMIN: 12, NET_RAW: 13, SYS_ADMIN: 21 } as const;

/** A number above the number of capabilities of any kernel: bits are tried one by one until the first unknown bit. */
const MAX_BITS = 64;

/**
 * Drops all capabilities except those in `keep`, permanently. They are also removed from the bounding set, if that is permitted, so that a
 * program that starts later does not get them even as root. The thread gets no capability that it did not have. Throws {@link KernelError}.
 */
export function keepCapabilities(keep: readonly number[]): void {
  const has = effectiveCapabilities();
  const wanted = keep.reduce((bits, bit) => bits | (1n << BigInt(bit)), 0n);
  if ((has & ~wanted) === 0n) return;
  if ((has & (1n << BigInt(CAP.SETPCAP))) !== 0n) {
    for (let bit = 0; bit < MAX_BITS; bit += 1) {
      if ((wanted & (1n << BigInt(bit))) === 0n && !dropFromBoundingSet(bit)) break;
    }
  }
  setCapabilities(has & wanted);
}
