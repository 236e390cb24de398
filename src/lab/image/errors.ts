import { ExpectedError } from "#base/errors";

/**
 * - `unreadable`: the file is not there, or is no archive of an OCI image.
 * - `damaged`: a blob has another digest than its name.
 * - `not-ours`: an image, but not of this suite.
 */
export type ImageErrorCode = "unreadable" | "damaged" | "not-ours";

/** An archive from which no program can be run. */
export class ImageError extends ExpectedError<ImageErrorCode> {
  override readonly name = "ImageError";
}
