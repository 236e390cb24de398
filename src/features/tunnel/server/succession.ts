import { renameSync } from "node:fs";
import { fileIdentity, isSocketServed, SocketPathError } from "#base/unix-socket";

/** The interface of the server that takes the place of one that ends. */
export interface Successor {
  /** Resolves to true while another server waits to take over. Rejects with `SocketPathError` where that is not known. */
  isWaiting(): Promise<boolean>;
  /** From now on frontends reach the successor. Returns false if it does not wait any more, or the file cannot be renamed; nothing has changed then. */
  handOver(): boolean;
}

/**
 * The socket of frontends when one server follows another at the same path (docs/spec/tunnel.md#11.1). The follower listens at a path beside it until
 * the earlier server renames that socket to the path of both, or is gone. A rename replaces the file in one step, so that every client reaches one of them.
 */
export class Succession implements Successor {
  /** The path of frontends. */
  readonly path: string;
  /** The path at which the follower listens before. */
  readonly waitingPath: string;
  #isBehind = false;

  constructor(path: string) {
    this.path = path;
    this.waitingPath = waitingPathOf(path);
  }

  /** True while this server waits for an earlier one, which serves the frontends. */
  get isBehind(): boolean {
    return this.#isBehind;
  }

  /** Begins to wait if another process serves the path. Resolves to whether it does. Rejects with `SocketPathError`. */
  async begin(): Promise<boolean> {
    this.#isBehind = await isSocketServed(this.path);
    return this.#isBehind;
  }

  /** Returns true if the socket `own` still has a file: at the waiting path, or at the path of both if the earlier server has renamed it. */
  isAt(own: string | undefined): boolean {
    // In this order: a rename in between is seen.
    return own !== undefined && (fileIdentity(this.waitingPath) === own || fileIdentity(this.path) === own);
  }

  /**
   * Ends the wait if the path is this server's: `own` is the identity of the socket that it listens on. Takes the path if nobody serves it any more.
   * Resolves to whether it has the path. Rejects with `SocketPathError`.
   */
  async proceed(own: string | undefined): Promise<boolean> {
    if (fileIdentity(this.path) !== own) {
      if (await isSocketServed(this.path)) return false;
      rename(this.waitingPath, this.path);
    }
    this.#isBehind = false;
    return true;
  }

  async isWaiting(): Promise<boolean> {
    return fileIdentity(this.waitingPath) !== undefined && (await isSocketServed(this.waitingPath));
  }

  handOver(): boolean {
    try {
      rename(this.waitingPath, this.path);
      return true;
    } catch (error) {
      if (error instanceof SocketPathError) return false;
      throw error;
    }
  }
}

/** The path beside `path` at which a follower listens. */
export function waitingPathOf(path: string): string {
  return `${path}.next`;
}

/** Throws {@link SocketPathError}. */
function rename(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (cause) {
    if (!(cause instanceof Error && "code" in cause)) throw cause;
    throw new SocketPathError("cannot-listen", `cannot rename ${from} to ${to}: ${cause.message}`, { cause });
  }
}
