import { KernelError } from "#kernel/errors";

/** Go's error texts, which Konnectivity's server and our server map to an HTTP status (docs/spec/tunnel.md#5.3, #6). */
const TEXTS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset by peer",
  EPIPE: "broken pipe",
  ETIMEDOUT: "i/o timeout",
  EHOSTUNREACH: "no route to host",
  ENETUNREACH: "network is unreachable",
  EADDRNOTAVAIL: "cannot assign requested address",
  EMFILE: "too many open files",
  ENFILE: "too many open files in system",
  EACCES: "permission denied",
  EPERM: "operation not permitted",
};

/** Go's text for a system error, of Node.js or of the kernel's calls; `undefined` for anything else. */
export function goErrorText(error: unknown): string | undefined {
  if (error instanceof KernelError) return error.errno === undefined ? undefined : TEXTS[error.errno];
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return TEXTS[String(error.code)];
}
