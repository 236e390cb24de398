import { ExpectedError } from "#base/errors";

/** `unreadable`: absent, not allowed, no regular file, or too large. `unwritable`: the file system refused the write. */
export type FileErrorCode = "unreadable" | "unwritable";

/** Thrown by {@link readBounded} and {@link replaceFile}. */
export class FileError extends ExpectedError<FileErrorCode> {
  override readonly name = "FileError";
}
