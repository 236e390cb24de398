import { FileError, readBounded } from "#base/file";
import { UplinkConfigError } from "./errors.ts";

/** Reads the text of a file. Throws {@link UplinkConfigError} `unreadable`. */
export function readInput(path: string): string {
  try {
    return readBounded(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    throw new UplinkConfigError("unreadable", error.message, { cause: error });
  }
}
