import { ExpectedError } from "#base/errors";

/**
 * - `already-up`, `not-up`: a lab of that name is, or is not, running.
 * - `start-failed`: a part did not come up; the message names its log.
 * - `no-such-pod`: no pod of that name runs in the lab.
 * - `not-reached`: the cluster did not reach the wanted state in time.
 * - `not-removed`: objects of a guest lab are still on its cluster.
 */
export type LabErrorCode = "already-up" | "not-up" | "start-failed" | "no-such-pod" | "not-reached" | "not-removed";

/** A lab cannot be built, found or removed, or has not reached its wanted state. */
export class LabError extends ExpectedError<LabErrorCode> {
  override readonly name = "LabError";
}
