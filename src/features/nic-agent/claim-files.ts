import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describeError, ExpectedError } from "#base/errors";
import { FileError, replaceFile } from "#base/file";
import type { NicClaim } from "#kube/nic";

/** The folder of claims cannot be read or written, or a file in it is no claim. */
export class ClaimFileError extends ExpectedError<"unreadable" | "unwritable" | "malformed"> {
  override readonly name = "ClaimFileError";
}

const SUFFIX = ".json";

/** The last known claims on disk, one file for each pod: ports that are plumbable can be plugged while the API server is away. */
export class ClaimFiles {
  readonly #folder: string;

  /** The folder is made at the first write. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** All claims, and the faults of files that are none or cannot be read. Throws {@link ClaimFileError} `unreadable`. */
  list(): { readonly claims: readonly NicClaim[]; readonly faults: readonly ClaimFileError[] } {
    const claims: NicClaim[] = [];
    const faults: ClaimFileError[] = [];
    for (const name of this.#names()) {
      const path = join(this.#folder, name);
      try {
        claims.push(parseClaim(readText(path), path));
      } catch (error) {
        if (!(error instanceof ClaimFileError)) throw error;
        faults.push(error);
      }
    }
    return { claims, faults };
  }

  /** Throws {@link ClaimFileError} `unwritable`. */
  write(claim: NicClaim): void {
    try {
      replaceFile(this.#path(claim.metadata.name), JSON.stringify(claim), { mode: 0o600, folderMode: 0o700 });
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      throw new ClaimFileError("unwritable", error.message, { cause: error });
    }
  }

  /** Removes the file of a pod, if there is one. Throws {@link ClaimFileError} `unwritable`. */
  remove(uid: string): void {
    try {
      rmSync(this.#path(uid), { force: true });
    } catch (error) {
      throw new ClaimFileError("unwritable", `cannot remove the claim of ${uid}`, { cause: error });
    }
  }

  #names(): readonly string[] {
    try {
      return readdirSync(this.#folder)
        .filter((name) => name.endsWith(SUFFIX) && !name.startsWith("."))
        .sort();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
      throw new ClaimFileError("unreadable", `cannot read ${this.#folder}`, { cause: error });
    }
  }

  #path(uid: string): string {
    // Names of claims are DNS labels, so a path never leaves the folder.
    if (!/^[a-z0-9][a-z0-9.-]{0,252}$/.test(uid))
      throw new ClaimFileError("malformed", `"${uid}" is not the name of a claim`);
    return join(this.#folder, `${uid}${SUFFIX}`);
  }
}

/** Throws {@link ClaimFileError} `unreadable`, as for a folder or a bad block of the disk. */
function readText(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new ClaimFileError("unreadable", `cannot read ${path}: ${describeError(error)}`, { cause: error });
  }
}

/** Reads a claim; only what a look at a gate needs is checked. Throws {@link ClaimFileError} `malformed`, which names the file. */
export function parseClaim(text: string, path: string): NicClaim {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ClaimFileError("malformed", `${path} is not JSON`, { cause: error });
  }
  const { metadata, spec, status } = fields(value);
  const { name, namespace, uid, resourceVersion } = fields(metadata);
  const { nics, podUID, podName, vpc } = fields(spec);
  const states = fields(status)["nics"] ?? [];
  const isClaim =
    [name, namespace, uid, resourceVersion, podUID, podName, vpc].every((one) => typeof one === "string") &&
    isListOfNamed(nics) &&
    isListOfNamed(states);
  if (!isClaim) throw new ClaimFileError("malformed", `${path} is not a claim`);
  return value as NicClaim;
}

function fields(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

function isListOfNamed(value: unknown): boolean {
  return Array.isArray(value) && value.every((one) => typeof fields(one)["name"] === "string");
}
