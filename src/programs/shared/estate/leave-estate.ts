import { readFileSync, statfsSync, statSync } from "node:fs";
import { join } from "node:path";
import { addToEstate, type ClaimSet, type Estate, EstateError } from "#base/estate";
import type { Logger } from "#base/log";
import { RUN_FOLDER, STATE_FOLDER } from "./folders.ts";

/** Random for each boot of the machine (proc_sys_kernel(5)). */
const BOOT_ID = "/proc/sys/kernel/random/boot_id";
/** OVERLAYFS_SUPER_MAGIC of linux/magic.h: the file system of a container, which ends with it. */
const OVERLAY = 0x794c_7630;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Leaves the estate of a daemon on the disk, for `isthmus uninstall`. `inode` is that of the network namespace that it configures; default: the process's own. A daemon runs also if the
 * estate cannot be written; one line of its log says so.
 */
export function leaveEstate(
  program: string,
  estate: Estate,
  {
    inode = ownNetns(),
    log,
    env = process.env,
  }: { readonly inode?: bigint; readonly log: Logger; readonly env?: Environment },
): void {
  const set: ClaimSet = {
    boot: bootId(),
    netns: String(inode),
    kernel: estate.kernel.flatMap(({ claims }) => claims),
    files: estate.files.map(({ path }) => path),
  };
  const folders = estateFolders(program, env);
  const faults = folders.flatMap((folder) => write(folder, program, set));
  if (faults.length < folders.length || folders.length === 0) return;
  log.info("what this program owns cannot be recorded on the host: isthmus uninstall will not know its numbers", {
    why: faults.join("; "),
  });
}

/** The folders for the estate of a program of this machine. Pure. */
export function estateFolders(program: string, env: Environment): readonly string[] {
  const [run, state] = [env["RUNTIME_DIRECTORY"], env["STATE_DIRECTORY"]];
  // A service manager that names folders lets the program write no others.
  if (run === undefined && state === undefined) return [RUN_FOLDER, STATE_FOLDER].map((one) => join(one, program));
  return [run, state].flatMap((list) => {
    const given = (list ?? "").split(":").filter((path) => path !== "");
    const own = given.find((path) => path.endsWith(`/isthmus/${program}`));
    const [first] = given;
    return own ?? (first === undefined ? [] : [join(first, program)]);
  });
}

/** The folders in which a program's own estate is looked for. Pure. */
export function ownEstateFolders(program: string, env: Environment): { readonly run: string; readonly state: string } {
  const [run = join(RUN_FOLDER, program), state = join(STATE_FOLDER, program)] = estateFolders(program, env);
  return { run, state };
}

/** The boot id of the machine. */
export function bootId(): string {
  return readFileSync(BOOT_ID, "utf8").trim();
}

/** The inode number of the network namespace of this process. */
export function ownNetns(): bigint {
  return statSync("/proc/self/ns/net", { bigint: true }).ino;
}

/** Returns the reasons why the host does not have the estate in this folder. */
function write(folder: string, program: string, set: ClaimSet): readonly string[] {
  try {
    addToEstate(folder, program, set);
    return statfsSync(folder).type === OVERLAY ? [`${folder} is in the file system of this container`] : [];
  } catch (error) {
    if (!(error instanceof EstateError)) throw error;
    return [error.message];
  }
}
