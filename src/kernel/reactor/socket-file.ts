import { lstatSync, rmSync } from "node:fs";

/** The file of a listening UNIX socket that this process has made. It is removed when the process exits, too. */
export class SocketFile {
  readonly path: string;
  readonly #identity: string | undefined;

  constructor(path: string) {
    this.path = path;
    this.#identity = identityOf(path);
    process.once("exit", this.#remove);
  }

  /** Removes the file, unless it is the file of another socket by now. */
  remove(): void {
    process.off("exit", this.#remove);
    this.#remove();
  }

  readonly #remove = (): void => {
    if (identityOf(this.path) === this.#identity) rmSync(this.path, { force: true });
  };
}

/** Names a file by its inode, which no other file gets as long as a socket is bound to it; `undefined` if there is no file. */
function identityOf(path: string): string | undefined {
  const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? undefined : `${stat.dev}:${stat.ino}`;
}
