/**
 * Loads the file of one program with code that V8 compiled for it before.
 *
 * Node keeps what V8 compiles while a file is loaded, which excludes nearly every function: V8 compiles those at their first call. What is
 * kept here is made when a program ends, and has all functions that it has called. A start that finds it compiles 700 functions less.
 *
 * A file is named after the text of the program, because V8 compares nothing but its length, and after V8's version and flags.
 */
import {
  accessSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { cachedDataVersionTag } from "node:v8";
import { Script } from "node:vm";
import { setV8Flag } from "#base/v8-flags";
import { isTrusted } from "./trusted-files.ts";

/** The exports of a program's file. */
export interface ProgramFile {
  /** Runs the called program; resolves with its exit code. */
  readonly main: () => Promise<number>;
}

/** The end of a program's file, where the build writes a hash of what precedes it. */
const END = /\n\/\/ ([0-9a-f]{16})\n$/;

/** Flags of V8's compilers of code that is called often. */
const COMPILERS = ["sparkplug", "maglev", "opt"] as const;

/**
 * Runs the file at `url`, in which one expression is a function of `exports`, `require`, `module` and the file's URL. Compiled code is read
 * from `folder`, unless somebody else could have changed it there; if there is none and the folder can be written, it is written at the end of the process. Without `folder` nothing is kept.
 * With ISTHMUS_COMPILES_AHEAD in the environment, two calls of a program that do the same write the same.
 *
 * @throws What reading the file, compiling it and running it throws.
 */
export function loadCompiled(url: URL, folder: string | undefined): ProgramFile {
  const filename = fileURLToPath(url);
  const source = readSource(filename);
  const [, hash] = END.exec(source.slice(-32)) ?? [];
  const kept =
    folder === undefined || hash === undefined
      ? undefined
      : join(folder, `${basename(filename)}-${hash}-${cachedDataVersionTag().toString(16)}`);
  const cachedData = kept === undefined ? undefined : read(kept);
  const script = new Script(source, { filename, ...(cachedData === undefined ? {} : { cachedData }) });
  if (cachedData !== undefined) release(cachedData);
  if (kept !== undefined && (cachedData === undefined || script.cachedDataRejected === true)) {
    // What V8's other compilers have done depends on the machine's load, and shows. The code is bound to the flags at its writing.
    const isBuild = process.env["ISTHMUS_COMPILES_AHEAD"] !== undefined;
    if (isBuild) for (const flag of COMPILERS) setV8Flag(`--no-${flag}`);
    process.once("exit", () => {
      if (isBuild) for (const flag of COMPILERS) setV8Flag(`--${flag}`);
      write(kept, script);
    });
  }
  const module = { exports: {} as ProgramFile };
  const run = script.runInThisContext() as (...values: readonly unknown[]) => void;
  run(module.exports, createRequire(url), module, url.href);
  return module.exports;
}

function readSource(filename: string): string {
  try {
    const bytes = readFileSync(filename);
    // The file is ASCII, and V8 takes this encoding as it is.
    const source = bytes.toString("latin1");
    release(bytes);
    return source;
  } catch (error) {
    // As Node calls it when a file is imported that is not there.
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    throw Object.assign(new Error(`Cannot find ${filename}`, { cause: error }), { code: "MODULE_NOT_FOUND" });
  }
}

/** Gives the memory of what was read back at once; a program at rest may collect nothing for hours. */
function release({ buffer, length }: Buffer<ArrayBuffer>): void {
  // Small files share a buffer with others.
  if (buffer.byteLength === length) buffer.transfer(0);
}

/** Reads a file whose content is run as code: nobody but root and this user may have been able to write it. */
function read(file: string): Buffer<ArrayBuffer> | undefined {
  let fd: number | undefined;
  try {
    // What is looked at is what is read.
    fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stat = fstatSync(fd);
    const isOurs = stat.isFile() && isTrusted(stat) && isTrusted(statSync(dirname(file)));
    return isOurs ? readFileSync(fd) : undefined;
  } catch {
    // It is not there, or not for this user: the start takes longer.
    return undefined;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** Another process may be writing the same file. Whatever the umask is, nobody else may change or read what this user's programs run. */
function write(file: string, script: Script): void {
  const work = `${file}.${process.pid}`;
  try {
    const folder = dirname(file);
    accessSync(folder, constants.W_OK);
    if (!isTrusted(statSync(folder))) return;
    const fd = openSync(work, "wx", 0o600);
    try {
      fchmodSync(fd, 0o600);
      writeFileSync(fd, script.createCachedData());
    } finally {
      closeSync(fd);
    }
    renameSync(work, file);
  } catch {
    // The folder is missing, full or of somebody else, or an earlier process of this id left its file: the next start takes as long as this one.
  }
}
