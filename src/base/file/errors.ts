import { ExpectedError } from "#base/errors";

/** `unreadable`: absent, not allowed, no regular file, or too large. */
export type FileErrorCode = "unreadable";

/** Thrown by {@link readBounded}. */
export class FileError extends ExpectedError<FileErrorCode> {
  override readonly name = "FileError";
}
