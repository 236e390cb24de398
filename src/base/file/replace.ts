import {
  closeSync,
  constants,
  copyFileSync,
  fchmodSync,
  fsyncSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { FileError } from "./errors.ts";
import { makeFolder } from "./folder.ts";

/** The new content: the text or bytes themselves, or the path of a file to copy. */
export type FileContent = string | Uint8Array | { readonly copyOf: string };

export interface ReplaceFileOptions {
  /** Permission bits, regardless of the umask. */
  readonly mode: number;
  /** If set, the folder and its parents are created with these permission bits where they are absent. */
  readonly folderMode?: number;
  /** If true, the call waits until the content is on the disk, so a crash of the machine leaves the old or the new file. Default false. */
  readonly sync?: boolean;
}

/**
 * Replaces a file in one step: a reader finds the old content or the new one, whole. The content is written beside the target and renamed,
 * under a name with a leading dot, so that readers of the folder ignore it. Throws {@link FileError}; the target
 * is unchanged then.
 */
export function replaceFile(path: string, content: FileContent, options: ReplaceFileOptions): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    if (options.folderMode !== undefined) makeFolder(dirname(path), options.folderMode);
    // Process ids repeat in containers: a killed writer may have left this file.
    rmSync(temporary, { force: true });
    write(temporary, content, options);
    renameSync(temporary, path);
  } catch (error) {
    removeIfPossible(temporary);
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new FileError("unwritable", `cannot write ${path}: ${error.message}`, { cause: error });
  }
}

function write(path: string, content: FileContent, { mode, sync = false }: ReplaceFileOptions): void {
  if (typeof content === "object" && "copyOf" in content) copyFileSync(content.copyOf, path, constants.COPYFILE_EXCL);
  else writeFileSync(path, content, { flag: "wx", mode: 0o600 });
  const fd = openSync(path, "r");
  try {
    fchmodSync(fd, mode);
    if (sync) fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/** The first failure is the one to report, and a folder that refuses the write may refuse the removal too. */
function removeIfPossible(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
  }
}
