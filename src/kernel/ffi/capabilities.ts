import { KernelError } from "#kernel/errors";
import { lastErrno, libc } from "./library.ts";

/** _LINUX_CAPABILITY_VERSION_3 of include/uapi/linux/capability.h: two words of 32 bits for each set. */
const VERSION_3 = 0x2008_0522;
/** include/uapi/linux/prctl.h. */
const PR_CAPBSET_DROP = 24;
const EINVAL = 22;

/** struct __user_cap_header_struct, for the calling thread. */
const header = (): Uint8Array => new Uint8Array(new Int32Array([VERSION_3, 0]).buffer);

/** capget(2): the effective set of the calling thread. */
export function effectiveCapabilities(): bigint {
  const data = new Uint32Array(6);
  const bytes = new Uint8Array(data.buffer);
  if (libc().capget(header(), bytes) < 0) throw KernelError.fromErrno(lastErrno(), "read capabilities");
  return BigInt(data[0] ?? 0) | (BigInt(data[3] ?? 0) << 32n);
}

/** capset(2): these capabilities are permitted and effective for the calling thread from now on; none are inheritable. */
export function setCapabilities(bits: bigint): void {
  const low = Number(bits & 0xffff_ffffn);
  const high = Number(bits >> 32n);
  const data = new Uint8Array(new Uint32Array([low, low, 0, high, high, 0]).buffer);
  if (libc().capset(header(), data) < 0) throw KernelError.fromErrno(lastErrno(), "set capabilities");
}

/** prctl(2) with PR_CAPBSET_DROP. False for a bit that the kernel does not have. */
export function dropFromBoundingSet(bit: number): boolean {
  if (libc().prctl(PR_CAPBSET_DROP, BigInt(bit), 0n, 0n, 0n) >= 0) return true;
  const errno = lastErrno();
  if (errno === EINVAL) return false;
  throw KernelError.fromErrno(errno, `drop capability ${bit} from the bounding set`);
}
