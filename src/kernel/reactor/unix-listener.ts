import { rmSync } from "node:fs";
import { close as closeDescriptor } from "#kernel/ffi";
import { type ListenUnixOptions, listenUnix } from "#kernel/socket";
import { SocketFile } from "./socket-file.ts";
import { type ListenerFaults, StreamListener } from "./stream-listener.ts";

/** Events of a listener. */
export interface UnixListenerEvents extends ListenerFaults {
  /**
   * A client was accepted: a connected, non-blocking descriptor, which the callee owns. May throw {@link KernelError}: that client is lost.
   */
  onClient(fd: number): void;
}

/** A listening UNIX stream socket that accepts clients, and its file, if it has made one. */
export class UnixListener extends StreamListener {
  readonly #events: UnixListenerEvents;
  readonly #file: SocketFile | undefined;

  /**
   * Listens on a path, which must be free (`claimSocketPath` of base/unix-socket). The file is removed when the listener is closed, and when
   * the process exits, unless it is the file of another socket by then. Throws {@link KernelError} as `listenUnix`; nothing is left then.
   */
  static listen(path: string, options: ListenUnixOptions, events: UnixListenerEvents): UnixListener {
    const fd = listenUnix(path, options);
    try {
      return new UnixListener(fd, events, new SocketFile(path));
    } catch (error) {
      rmSync(path, { force: true });
      throw error;
    }
  }

  /**
   * Adopts a descriptor of a {@link SharedUnixSocket}, from which several processes accept. The kernel wakes all of them for a client, and one
   * gets it; so that each gets its part, each takes one client at a time. Throws {@link KernelError} when the descriptor cannot be watched; it
   * is closed then.
   */
  static adopt(fd: number, events: UnixListenerEvents): UnixListener {
    return new UnixListener(fd, events, undefined);
  }

  private constructor(fd: number, events: UnixListenerEvents, file: SocketFile | undefined) {
    super(fd, events, file === undefined ? { acceptsPerTick: 1 } : {});
    this.#events = events;
    this.#file = file;
  }

  /** The path of the socket's file; empty if another process has made it. */
  get path(): string {
    return this.#file?.path ?? "";
  }

  /** The socket's file was renamed: it is at this path now, where it is removed in the end. Nothing changes for clients. */
  moved(path: string): void {
    this.#file?.moved(path);
  }

  protected onAccepted(fd: number): void {
    this.#events.onClient(fd);
  }

  protected override onClose(): void {
    this.#file?.remove();
  }
}

/** A listening UNIX stream socket from which other processes accept, which inherit its descriptor. */
export class SharedUnixSocket implements Disposable {
  readonly fd: number;
  readonly #file: SocketFile;
  #isClosed = false;

  /** Listens on a path, which must be free. Throws {@link KernelError} as `listenUnix`. */
  static listen(path: string, options: ListenUnixOptions): SharedUnixSocket {
    return new SharedUnixSocket(listenUnix(path, options), new SocketFile(path));
  }

  private constructor(fd: number, file: SocketFile) {
    this.fd = fd;
    this.#file = file;
  }

  /** False if the socket's file was removed or replaced: no client reaches the socket then. */
  get isReachable(): boolean {
    return this.#file.isThere;
  }

  /** The socket's file was renamed: it is at this path now. */
  moved(path: string): void {
    this.#file.moved(path);
  }

  /** Removes the file, so that no client comes any more, and closes the descriptor of this process. Idempotent. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#file.remove();
    closeDescriptor(this.fd);
  }
}
