/** errno numbers of Linux on x86-64 and arm64 (include/uapi/asm-generic/errno-base.h, errno.h), with glibc's texts. */
const ERRNO: Readonly<Record<number, readonly [name: string, text: string]>> = {
  1: ["EPERM", "Operation not permitted"],
  2: ["ENOENT", "No such file or directory"],
  3: ["ESRCH", "No such process"],
  4: ["EINTR", "Interrupted system call"],
  5: ["EIO", "Input/output error"],
  6: ["ENXIO", "No such device or address"],
  7: ["E2BIG", "Argument list too long"],
  9: ["EBADF", "Bad file descriptor"],
  11: ["EAGAIN", "Resource temporarily unavailable"],
  12: ["ENOMEM", "Cannot allocate memory"],
  13: ["EACCES", "Permission denied"],
  14: ["EFAULT", "Bad address"],
  16: ["EBUSY", "Device or resource busy"],
  17: ["EEXIST", "File exists"],
  19: ["ENODEV", "No such device"],
  20: ["ENOTDIR", "Not a directory"],
  21: ["EISDIR", "Is a directory"],
  22: ["EINVAL", "Invalid argument"],
  23: ["ENFILE", "Too many open files in system"],
  24: ["EMFILE", "Too many open files"],
  25: ["ENOTTY", "Inappropriate ioctl for device"],
  28: ["ENOSPC", "No space left on device"],
  30: ["EROFS", "Read-only file system"],
  32: ["EPIPE", "Broken pipe"],
  34: ["ERANGE", "Numerical result out of range"],
  36: ["ENAMETOOLONG", "File name too long"],
  38: ["ENOSYS", "Function not implemented"],
  40: ["ELOOP", "Too many levels of symbolic links"],
  71: ["EPROTO", "Protocol error"],
  74: ["EBADMSG", "Bad message"],
  75: ["EOVERFLOW", "Value too large for defined data type"],
  88: ["ENOTSOCK", "Socket operation on non-socket"],
  90: ["EMSGSIZE", "Message too long"],
  92: ["ENOPROTOOPT", "Protocol not available"],
  93: ["EPROTONOSUPPORT", "Protocol not supported"],
  94: ["ESOCKTNOSUPPORT", "Socket type not supported"],
  95: ["EOPNOTSUPP", "Operation not supported"],
  97: ["EAFNOSUPPORT", "Address family not supported by protocol"],
  98: ["EADDRINUSE", "Address already in use"],
  99: ["EADDRNOTAVAIL", "Cannot assign requested address"],
  100: ["ENETDOWN", "Network is down"],
  101: ["ENETUNREACH", "Network is unreachable"],
  103: ["ECONNABORTED", "Software caused connection abort"],
  104: ["ECONNRESET", "Connection reset by peer"],
  105: ["ENOBUFS", "No buffer space available"],
  107: ["ENOTCONN", "Transport endpoint is not connected"],
  110: ["ETIMEDOUT", "Connection timed out"],
  111: ["ECONNREFUSED", "Connection refused"],
  113: ["EHOSTUNREACH", "No route to host"],
  115: ["EINPROGRESS", "Operation now in progress"],
};

/** The name of an errno: `EEXIST` for 17; `E<number>` if the number is not in the table. */
export function errnoName(errno: number): string {
  return ERRNO[errno]?.[0] ?? `E${errno}`;
}

/** The text of an errno: `File exists` for 17. */
export function errnoText(errno: number): string {
  return ERRNO[errno]?.[1] ?? `error number ${errno}`;
}

/** The number of an errno's name: 17 for `EEXIST`; `undefined` for an unknown name. */
export function errnoNumber(name: string): number | undefined {
  const found = Object.entries(ERRNO).find(([, [known]]) => known === name);
  return found === undefined ? undefined : Number(found[0]);
}
