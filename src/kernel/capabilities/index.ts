/**
 * Capabilities of the calling thread (capabilities(7)): threads and processes that it makes later have no more than it has then.
 *
 * Owns: reading them. Refuses to know: their use.
 *
 * ```ts
 * keepCapabilities([CAP.NET_ADMIN]);
 * ```
 */
import { dropFromBoundingSet, effectiveCapabilities, setCapabilities } from "#kernel/ffi";

/** Bits of include/uapi/linux/capability.h. */
export const CAP = { SETPCAP: 8, NET_BIND_SERVICE: 10, NET_ADMIN: 12, NET_RAW: 13, SYS_ADMIN: 21 } as const;

/** More than any kernel has: they are read one by one until the first unknown one. */
const MAX_BITS = 64;

/**
 * Gives all others up, for good: they leave the bounding set as well, where that is permitted, so that a program that is started later has
 * none of them though it runs as root. Those that the thread does not have are not got by it. Throws {@link KernelError}.
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
