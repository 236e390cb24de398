import { ExpectedError } from "#base/errors";
import { errnoName, errnoText } from "./errno.ts";

/**
 * The kinds of failures that callers distinguish.
 *
 * - `not-found`: the named object does not exist (ENOENT, ESRCH, EADDRNOTAVAIL)
 * - `already-exists`: the object exists already (EEXIST)
 * - `busy`: another program or object uses the named object (EBUSY, EADDRINUSE)
 * - `not-permitted`: a privilege is missing (EPERM, EACCES)
 * - `invalid`: the kernel refuses the request as it is (EINVAL, ERANGE, …), or it cannot be encoded
 * - `unsupported`: this kernel lacks the feature (EOPNOTSUPP, EAFNOSUPPORT, …)
 * - `no-device`: the named link does not exist (ENODEV, ENXIO)
 * - `unreachable`: a gateway or destination cannot be reached (ENETUNREACH, EHOSTUNREACH, ENETDOWN)
 * - `interrupted`: the listed objects changed during each try of a dump
 * - `timeout`: the kernel did not answer in time
 * - `failed`: anything else; see the errno
 */
export type KernelErrorCode =
  | "not-found"
  | "already-exists"
  | "busy"
  | "not-permitted"
  | "invalid"
  | "unsupported"
  | "no-device"
  | "unreachable"
  | "interrupted"
  | "timeout"
  | "failed";

/** A request that the kernel, or our check before it, refused. Nothing was changed, unless the message reports a change. */
export class KernelError extends ExpectedError<KernelErrorCode> {
  override readonly name = "KernelError";
  /** The errno's name, such as `EEXIST`; `undefined` if the kernel was not called. */
  readonly errno: string | undefined;

  constructor(
    code: KernelErrorCode,
    message: string,
    init: { readonly errno?: string | undefined; readonly cause?: unknown } = {},
  ) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.errno = init.errno;
  }

  /**
   * Translates an errno. `what` is the attempt and its object (`add route 10.0.0.0/24 via 192.0.2.1`),
   * `detail` is the kernel's error text, from an extended ack.
   */
  static fromErrno(errno: number, what: string, detail = ""): KernelError {
    const name = errnoName(errno);
    const reason = detail === "" ? errnoText(errno) : `${errnoText(errno)}: ${detail}`;
    return new KernelError(codeOf(name), `Cannot ${what}: ${reason} (${name})`, { errno: name });
  }
}

const CODES: Readonly<Record<string, KernelErrorCode>> = {
  ENOENT: "not-found",
  ESRCH: "not-found",
  EADDRNOTAVAIL: "not-found",
  EEXIST: "already-exists",
  EBUSY: "busy",
  EADDRINUSE: "busy",
  EPERM: "not-permitted",
  EACCES: "not-permitted",
  EROFS: "not-permitted",
  EINVAL: "invalid",
  ERANGE: "invalid",
  ENAMETOOLONG: "invalid",
  EMSGSIZE: "invalid",
  ENOTDIR: "invalid",
  EOPNOTSUPP: "unsupported",
  EAFNOSUPPORT: "unsupported",
  EPROTONOSUPPORT: "unsupported",
  ESOCKTNOSUPPORT: "unsupported",
  ENOPROTOOPT: "unsupported",
  ENOSYS: "unsupported",
  ENODEV: "no-device",
  ENXIO: "no-device",
  ENETUNREACH: "unreachable",
  EHOSTUNREACH: "unreachable",
  ENETDOWN: "unreachable",
  EINTR: "interrupted",
  EAGAIN: "timeout",
  ETIMEDOUT: "timeout",
};

function codeOf(name: string): KernelErrorCode {
  return CODES[name] ?? "failed";
}

/** True for a {@link KernelError} with one of `codes`. */
export function isKernelError(error: unknown, ...codes: readonly KernelErrorCode[]): error is KernelError {
  return error instanceof KernelError && (codes.length === 0 || codes.includes(error.code));
}
