import { ExpectedError } from "#base/errors";

/** `ended`: a worker ended although nobody asked it to, and its own output names the reason; or its process could not be made. */
export type WorkerErrorCode = "ended";

export class WorkerError extends ExpectedError<WorkerErrorCode> {
  override readonly name = "WorkerError";
}
