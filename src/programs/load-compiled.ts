/**
 * Loads the file of one program with code that V8 compiled for it before.
 *
 * Node keeps what V8 compiles while a file is loaded, which excludes nearly every function: V8 compiles those at their first call. What is
 * kept here is made when a program ends, and has all functions that it has called. A start that finds it compiles 700 functions less.
 *
 * A file is named after the text of the program, because V8 compares nothing but its length, and after V8's version and flags.
 */
import { accessSync, constants, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { cachedDataVersionTag, setFlagsFromString } from "node:v8";
import { Script } from "node:vm";

/** What the file of a program exports. */
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
 * from `folder`; if there is none and the folder can be written, it is written at the end of the process. Without `folder` nothing is kept.
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
    if (isBuild) for (const flag of COMPILERS) setFlagsFromString(`--no-${flag}`);
    process.once("exit", () => {
      if (isBuild) for (const flag of COMPILERS) setFlagsFromString(`--${flag}`);
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

/** What it has was compiled by root or this user: code is run as it is. */
function read(file: string): Buffer<ArrayBuffer> | undefined {
  try {
    const { uid } = statSync(file);
    return uid === 0 || uid === process.geteuid?.() ? readFileSync(file) : undefined;
  } catch {
    // It is not there, or not for this user: the start takes longer.
    return undefined;
  }
}

/** Another process may be writing the same file. */
function write(file: string, script: Script): void {
  const work = `${file}.${process.pid}`;
  try {
    accessSync(join(file, ".."), constants.W_OK);
    writeFileSync(work, script.createCachedData());
    renameSync(work, file);
  } catch {
    // The folder is missing, full or of somebody else: the next start takes as long as this one.
  }
}
