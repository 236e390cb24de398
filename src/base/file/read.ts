import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { FileError } from "./errors.ts";

/** The maximum size of a file, in bytes. A larger file is refused. */
export const MAX_FILE_BYTES = 1 << 20;

/** Reads the text of a file of at most {@link MAX_FILE_BYTES}. Throws {@link FileError}. */
export function readBounded(path: string): string {
  try {
    // Without O_NONBLOCK, opening a pipe that has no writer would block the program.
    const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(fd);
      if (!stat.isFile()) throw new FileError("unreadable", `cannot read ${path}: it is not a file`);
      const buffer = Buffer.alloc(MAX_FILE_BYTES + 1);
      let length = 0;
      for (let got = -1; got !== 0 && length < buffer.length; length += got) {
        got = readSync(fd, buffer, length, buffer.length - length, null);
      }
      if (length <= MAX_FILE_BYTES) return buffer.toString("utf8", 0, length);
      throw new FileError("unreadable", `cannot read ${path}: it has more than ${MAX_FILE_BYTES} bytes`);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new FileError("unreadable", `cannot read ${path}: ${error.message}`, { cause: error });
  }
}
