import { chmodSync } from "node:fs";
import { dirname } from "node:path";
import { FileError, readBounded, replaceFile } from "#base/file";
import type { ServerAddress } from "#kube/client";
import { parseServers, textOf } from "./server-list.ts";

/** The servers that a program has learnt, in a file of a folder of its own that only its user reads. */
export class ServerFile {
  readonly #path: string;
  readonly #of: string;

  /** `of` is the URL of the configured server: the servers of another one are of another cluster. */
  constructor(path: string, of: string) {
    this.#path = path;
    this.#of = of;
  }

  /** The servers of the file; none if it is absent, unreadable, of another configured server, or of no such text. */
  read(): readonly ServerAddress[] {
    try {
      const kept: unknown = JSON.parse(readBounded(this.#path));
      if (typeof kept !== "object" || kept === null) return [];
      const { of, servers } = kept as { readonly of?: unknown; readonly servers?: unknown };
      return of === this.#of && Array.isArray(servers) ? parseServers(servers) : [];
    } catch (error) {
      // The next answer of the API server replaces it.
      if (error instanceof FileError || error instanceof SyntaxError) return [];
      throw error;
    }
  }

  /** Replaces the file. Throws `FileError`. */
  write(servers: readonly ServerAddress[]): void {
    const text = `${JSON.stringify({ of: this.#of, servers: servers.map(textOf) })}\n`;
    replaceFile(this.#path, text, { mode: 0o600, folderMode: 0o755 });
    restrict(dirname(this.#path));
  }
}

/** Parents of the folder are others' too, so that only itself is closed. Throws `FileError`. */
function restrict(folder: string): void {
  try {
    chmodSync(folder, 0o700);
  } catch (cause) {
    if (!(cause instanceof Error && "syscall" in cause)) throw cause;
    throw new FileError("unwritable", `cannot close the folder ${folder}: ${cause.message}`, { cause });
  }
}
