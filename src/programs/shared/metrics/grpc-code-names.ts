/** Names of gRPC codes as Go prints them, in the order of their numbers. */
export const CODE_NAMES = [
  "OK",
  "Canceled",
  "Unknown",
  "InvalidArgument",
  "DeadlineExceeded",
  "NotFound",
  "AlreadyExists",
  "PermissionDenied",
  "ResourceExhausted",
  "FailedPrecondition",
  "Aborted",
  "OutOfRange",
  "Unimplemented",
  "Internal",
  "Unavailable",
  "DataLoss",
  "Unauthenticated",
] as const;

/** The name of a gRPC code, as metrics of Go programs have it; `Unknown` for a number that is not a code. */
export function codeName(code: number): string {
  return CODE_NAMES[code] ?? "Unknown";
}
