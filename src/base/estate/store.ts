import { chmodSync, closeSync, constants, fstatSync, lstatSync, openSync, readSync, type Stats } from "node:fs";
import { dirname, join } from "node:path";
import { isEqual } from "#base/collections";
import { FileError, replaceFile } from "#base/file";
import { decodeSets, encodeSets, MAX_ESTATE_BYTES } from "./codec.ts";
import { EstateError } from "./errors.ts";
import type { ClaimSet } from "./types.ts";

/** The name of the file in the folder of a program. */
const FILE = "estate.json";
/** Bits of a mode by which a group or anybody else may write. */
const OTHERS_WRITE = 0o022;

/** An estate of the disk. */
export interface StoredEstate {
  /** Newest first. */
  readonly sets: readonly ClaimSet[];
  /** The user that owns the folder and the file. */
  readonly uid: number;
}

/**
 * Reads the estate of a program from its folder. Neither the folder nor the file may be a link; the folder above must be root's, or this process's user's, and
 * nobody else's to write; the file must be of the folder's owner. At most 64 KiB are read. Throws {@link EstateError}; `absent` if there is none.
 */
export function readEstate(folder: string, program: string): StoredEstate {
  const untrusted = (what: string): EstateError =>
    new EstateError("untrusted", `the estate of ${program} in ${folder} is not used: ${what}`);
  return translated(`cannot read the estate of ${program} in ${folder}`, () => {
    using parent = openFolder(dirname(folder));
    if (!isTrusted(parent.stat)) throw untrusted(`others than root may write ${dirname(folder)}`);
    // Through the folder that was examined, whatever has been put in its place since.
    using own = openFolder(join(parent.path, folder.slice(dirname(folder).length)));
    if ((own.stat.mode & OTHERS_WRITE) !== 0) throw untrusted("others than its owner may write the folder");
    // Without O_NONBLOCK a pipe without a writer would block the reader.
    using file = openHeld(join(own.path, FILE), constants.O_RDONLY | constants.O_NONBLOCK);
    const { uid } = own.stat;
    if (!file.stat.isFile()) throw untrusted(`${FILE} is not a regular file`);
    if (file.stat.uid !== uid) throw untrusted(`${FILE} is not of the folder's owner`);
    if ((file.stat.mode & OTHERS_WRITE) !== 0) throw untrusted(`others than its owner may write ${FILE}`);
    return { sets: decodeSets(program, readText(file.fd)), uid };
  });
}

/**
 * Writes a set before those that the folder's estate has; an equal one is replaced by it. Sets of another boot keep their paths alone. The folder is made where
 * it is absent, and closed to others. A file that cannot be used is replaced. Throws {@link EstateError} `unwritable` or `invalid`.
 */
export function addToEstate(folder: string, program: string, set: ClaimSet): void {
  const text = encodeSets(program, [set, ...formerSets(folder, program, set)]);
  try {
    replaceFile(join(folder, FILE), text, { mode: 0o600, folderMode: 0o755 });
    const stat = lstatSync(folder);
    if (stat.uid === process.geteuid?.()) chmodSync(folder, 0o700);
  } catch (error) {
    if (!(error instanceof FileError) && !(error instanceof Error && "syscall" in error)) throw error;
    throw new EstateError("unwritable", `cannot write the estate of ${program}: ${error.message}`, { cause: error });
  }
}

function formerSets(folder: string, program: string, set: ClaimSet): readonly ClaimSet[] {
  const isThis = (one: ClaimSet): boolean => isEqual(one, set);
  try {
    const former = readEstate(folder, program).sets.filter((one) => !isThis(one));
    const kept = former
      .map((one) => (one.boot === set.boot ? one : { ...one, kernel: [] }))
      .filter(({ kernel, files }) => kernel.length > 0 || files.some((path) => !set.files.includes(path)));
    return kept.filter((one, at) => kept.findIndex((other) => isEqual(other, one)) === at);
  } catch (error) {
    if (error instanceof EstateError) return [];
    throw error;
  }
}

interface Held extends Disposable {
  readonly fd: number;
  readonly stat: Stats;
  /** A path by which the open file is found again. */
  readonly path: string;
}

function openFolder(path: string): Held {
  return openHeld(path, constants.O_RDONLY | constants.O_DIRECTORY);
}

function openHeld(path: string, flags: number): Held {
  const fd = openSync(path, flags | constants.O_NOFOLLOW);
  return { fd, stat: fstatSync(fd), path: `/proc/self/fd/${fd}`, [Symbol.dispose]: () => closeSync(fd) };
}

function readText(fd: number): string {
  const buffer = Buffer.alloc(MAX_ESTATE_BYTES + 1);
  let length = 0;
  for (let got = -1; got !== 0 && length < buffer.length; length += got)
    got = readSync(fd, buffer, length, buffer.length - length, null);
  return buffer.toString("utf8", 0, length);
}

function isTrusted({ uid, mode }: Stats): boolean {
  return (uid === 0 || uid === process.geteuid?.()) && (mode & OTHERS_WRITE) === 0;
}

/** Errors of the file system as {@link EstateError}. */
function translated<T>(attempt: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    const { code } = error as NodeJS.ErrnoException;
    const kind = code === "ENOENT" ? "absent" : code === "ELOOP" || code === "ENOTDIR" ? "untrusted" : "unreadable";
    throw new EstateError(kind, `${attempt}: ${error.message}`, { cause: error });
  }
}
