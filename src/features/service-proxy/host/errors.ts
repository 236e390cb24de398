import { ExpectedError } from "#base/errors";

/** `kernel-too-old`: the kernel is too old for the rules of Services. */
export type HostErrorCode = "kernel-too-old";

/** Thrown by the start checks. */
export class HostError extends ExpectedError<HostErrorCode> {
  override readonly name = "HostError";
}
