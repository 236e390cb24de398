import { KernelError } from "#kernel/errors";
import { lastErrno, libc } from "./library.ts";

/** include/uapi/linux/prctl.h and signal.h. */
const [PR_SET_PDEATHSIG, SIGKILL] = [1, 9];

/** prctl(2) with PR_SET_PDEATHSIG: the kernel kills this process when its parent ends. */
export function killAtParentDeath(): void {
  if (libc().prctl(PR_SET_PDEATHSIG, BigInt(SIGKILL), 0n, 0n, 0n) >= 0) return;
  throw KernelError.fromErrno(lastErrno(), "be killed with the parent process");
}
