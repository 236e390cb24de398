import { isKernelError } from "#kernel/errors";
import { C, getsockopt, setsockopt } from "#kernel/ffi";

/** Options of both queues: the one that needs CAP_NET_ADMIN in the initial user namespace, and the one that net.core.rmem_max or wmem_max limits. */
const OPTIONS = {
  receive: { force: C.SO_RCVBUFFORCE, limited: C.SO_RCVBUF },
  send: { force: C.SO_SNDBUFFORCE, limited: C.SO_SNDBUF },
} as const;

/**
 * Enlarges a queue of a socket to `bytes`, or without the privilege, to what the system allows. Returns the size that the kernel accounts with, in
 * bytes: twice what was set. Throws {@link KernelError}.
 */
export function enlargeQueue(fd: number, queue: keyof typeof OPTIONS, bytes: number): number {
  const { force, limited } = OPTIONS[queue];
  try {
    setsockopt(fd, C.SOL_SOCKET, force, bytes, `enlarge the ${queue} queue of a netlink socket`);
  } catch (error) {
    if (!isKernelError(error, "not-permitted")) throw error;
    setsockopt(fd, C.SOL_SOCKET, limited, bytes, `enlarge the ${queue} queue of a netlink socket`);
  }
  return getsockopt(fd, C.SOL_SOCKET, limited);
}
