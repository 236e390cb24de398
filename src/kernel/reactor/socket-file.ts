import { rmSync } from "node:fs";
import { fileIdentity } from "#base/unix-socket";

/** The file of a listening UNIX socket that this process has made. It is removed when the process exits, too. */
export class SocketFile {
  #path: string;
  readonly #identity: string | undefined;

  constructor(path: string) {
    this.#path = path;
    this.#identity = fileIdentity(path);
    process.once("exit", this.#remove);
  }

  get path(): string {
    return this.#path;
  }

  /** The file was renamed: it is at this path now. */
  moved(path: string): void {
    this.#path = path;
  }

  /** False if the file was removed, or replaced by another one: no client reaches the socket then. */
  get isThere(): boolean {
    return this.#identity !== undefined && fileIdentity(this.path) === this.#identity;
  }

  /** Removes the file, unless it is the file of another socket by now. */
  remove(): void {
    process.off("exit", this.#remove);
    this.#remove();
  }

  readonly #remove = (): void => {
    if (fileIdentity(this.#path) === this.#identity) rmSync(this.#path, { force: true });
  };
}
