import type { ListenerSettings } from "#base/uplink-model";
import { BindLoop, type BindLoopDeps } from "./bind-loop.ts";

/** Dependencies of a set of listeners. */
export interface ListenerSetDeps extends Omit<BindLoopDeps, "openFd"> {
  /** Makes the descriptor of a special listener, such as that of transparent mode. */
  readonly openFd?: ((listener: ListenerSettings) => number) | undefined;
  /** Runs a listener until its signal aborts; it rejects only for bugs. */
  readonly spawn: (run: () => Promise<void>) => void;
}

/** Options of listeners. */
export interface ListenerSetOptions {
  readonly backlog: () => number;
  /** True if several threads accept at the listener's address. */
  readonly isShared: (listener: ListenerSettings) => boolean;
}

interface Entry {
  /** The listener's present settings: all except name, role, address and port may change while it is bound. */
  listener: ListenerSettings;
  readonly loop: BindLoop;
  readonly stop: AbortController;
}

/** The listeners of one thread, as the settings want them. */
export class ListenerSet {
  readonly #deps: ListenerSetDeps;
  readonly #options: ListenerSetOptions;
  readonly #entries = new Map<string, Entry>();

  constructor(deps: ListenerSetDeps, options: ListenerSetOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** The listeners that are bound now. */
  get bound(): readonly ListenerSettings[] {
    return [...this.#entries.values()].filter(({ loop }) => loop.isBound).map(({ listener }) => listener);
  }

  /** Starts and ends listeners so that exactly the wanted ones exist. Listeners that exist already stay bound. */
  sync(wanted: readonly ListenerSettings[]): void {
    const byKey = new Map(wanted.map((listener) => [keyOf(listener), listener]));
    for (const [key, { stop }] of this.#entries) {
      if (byKey.has(key)) continue;
      stop.abort();
      this.#entries.delete(key);
    }
    for (const [key, listener] of byKey) {
      const known = this.#entries.get(key);
      if (known === undefined) this.#start(key, listener);
      else known.listener = listener;
    }
  }

  /** Tries all unbound listeners again at once. Call when addresses may have been assigned. */
  retryNow(): void {
    for (const { loop } of this.#entries.values()) loop.retryNow();
  }

  /** Ends all listeners. Accepted clients stay connected. */
  stop(): void {
    this.sync([]);
  }

  #start(key: string, listener: ListenerSettings): void {
    const { openFd, spawn, onClient, ...deps } = this.#deps;
    const { backlog, isShared } = this.#options;
    const stop = new AbortController();
    const isTransparent = listener.role === "transparent" && openFd !== undefined;
    const loop = new BindLoop(
      listener,
      {
        ...deps,
        onClient: (fd, remote) => onClient(fd, remote, this.#entries.get(key)?.listener ?? listener),
        ...(isTransparent ? { openFd } : {}),
      },
      { backlog: backlog(), reusePort: isShared(listener) },
    );
    this.#entries.set(key, { listener, loop, stop });
    spawn(() => loop.run({ signal: stop.signal }));
  }
}

/** The attributes that require a new socket when they change. */
function keyOf({ name, role, address, port }: ListenerSettings): string {
  return `${name} ${role} ${address} ${port}`;
}
