import { isKernelError, KernelError } from "#kernel/errors";
import { C, close, ioctl, ioctlValue, open } from "#kernel/ffi";
import { inNetNs } from "#kernel/netns";
import type { TunOptions } from "./types.ts";

/** Numbers of include/uapi/linux/if_tun.h. */
const TUNSETIFF = 0x400454ca;
const TUNSETPERSIST = 0x400454cb;
const TUNSETOWNER = 0x400454cc;
const EEXIST = 17;
const IFF_TUN = 1;
const IFF_TAP = 2;
const IFF_MULTI_QUEUE = 0x100;
const IFF_NO_PI = 0x1000;
const IFF_VNET_HDR = 0x4000;
const IFF_TUN_EXCL = 0x8000;

/** Makes a persistent tun or tap device: rtnetlink cannot make it, so this uses an ioctl inside the namespace. */
export function createTun(ns: { readonly fd: number }, spec: TunOptions & { readonly name: string }): void {
  const request = Buffer.alloc(40); // struct ifreq
  request.write(spec.name, 0, 15, "utf8");
  const flags =
    (spec.mode === "tap" ? IFF_TAP : IFF_TUN) |
    IFF_NO_PI |
    IFF_TUN_EXCL |
    (spec.multiQueue === true ? IFF_MULTI_QUEUE : 0) |
    (spec.vnetHeader === true ? IFF_VNET_HDR : 0);
  request.writeUInt16LE(flags, 16);
  const what = `create ${spec.mode} link ${spec.name}`;
  inNetNs(ns, () => {
    const fd = open("/dev/net/tun", C.O_RDWR);
    try {
      attach(fd, request, what);
      if (spec.ownerUid !== undefined) ioctlValue(fd, TUNSETOWNER, spec.ownerUid, what);
      ioctlValue(fd, TUNSETPERSIST, 1, what);
    } finally {
      close(fd);
    }
  });
}

function attach(fd: number, request: Uint8Array, what: string): void {
  try {
    ioctl(fd, TUNSETIFF, request, what);
  } catch (error) {
    // With IFF_TUN_EXCL the driver returns EBUSY, every other kind EEXIST.
    if (isKernelError(error, "busy")) throw KernelError.fromErrno(EEXIST, what);
    throw error;
  }
}
