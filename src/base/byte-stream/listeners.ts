/** Events of a stream. */
export interface ByteStreamEvents {
  /** The bytes may be overwritten after the listener has returned: a listener that keeps them must copy them. */
  data: [chunk: Uint8Array];
  /** The peer has ended its sending (FIN). */
  end: [];
  /** All written bytes are handed to the kernel, after a `write` that returned false. */
  drain: [];
  /** All written bytes and the FIN are handed to the kernel. */
  finish: [];
  /** The descriptor is closed. `errored` is set if the connection was lost. It is the last event. */
  close: [];
}

type Name = keyof ByteStreamEvents;
type Listener<N extends Name> = (...args: ByteStreamEvents[N]) => void;
/** A listener of any event; the field that holds the listener decides which event. */
type AnyListener = (chunk: Uint8Array) => void;
/** The array has nearly always zero or one listener. */
type Listeners = AnyListener | readonly AnyListener[] | undefined;

/** A listener that runs once. As in Node.js's emitters, `off` accepts the function that was passed to `once`. */
interface OnceListener extends AnyListener {
  readonly listener?: AnyListener;
}

/**
 * The listeners of a stream, one field for each of its five events. Node.js's `EventEmitter` makes a dictionary for each emitter, which
 * takes more CPU time than the system calls that open a short connection.
 */
export abstract class StreamListeners {
  #data: Listeners;
  #end: Listeners;
  #drain: Listeners;
  #finish: Listeners;
  #close: Listeners;

  on<N extends Name>(name: N, listener: Listener<N>): this {
    const before = this.#of(name);
    const added = listener as AnyListener;
    if (before === undefined) this.#set(name, added);
    else this.#set(name, typeof before === "function" ? [before, added] : [...before, added]);
    return this;
  }

  once<N extends Name>(name: N, listener: Listener<N>): this {
    let isOver = false;
    const once = (...args: ByteStreamEvents[N]): void => {
      if (isOver) return;
      isOver = true;
      this.off(name, once);
      listener(...args);
    };
    return this.on(name, Object.assign(once, { listener }));
  }

  /** Removes the listener that was added last. Does nothing if it is not there. */
  off<N extends Name>(name: N, listener: Listener<N>): this {
    const before = this.#of(name);
    if (before === listener) this.#set(name, undefined);
    else if (before !== undefined) this.#remove(name, typeof before === "function" ? [before] : before, listener);
    return this;
  }

  /** Calls the present listeners in the order in which they were added. An error of a listener is thrown to the caller. */
  protected emit(name: "data", chunk: Uint8Array): void;
  protected emit(name: Exclude<Name, "data">): void;
  protected emit(name: Name, chunk: Uint8Array = NOTHING): void {
    const listeners = this.#of(name);
    if (listeners === undefined) return;
    if (typeof listeners === "function") listeners(chunk);
    else for (const listener of listeners) listener(chunk);
  }

  #remove<N extends Name>(name: Name, before: readonly AnyListener[], listener: Listener<N>): void {
    const at = before.findLastIndex((one: OnceListener) => one === listener || one.listener === listener);
    if (at < 0) return;
    const left = before.toSpliced(at, 1);
    this.#set(name, left.length > 1 ? left : left[0]);
  }

  #of(name: Name): Listeners {
    switch (name) {
      case "data":
        return this.#data;
      case "end":
        return this.#end;
      case "drain":
        return this.#drain;
      case "finish":
        return this.#finish;
      case "close":
        return this.#close;
    }
  }

  #set(name: Name, listeners: Listeners): void {
    switch (name) {
      case "data":
        this.#data = listeners;
        break;
      case "end":
        this.#end = listeners;
        break;
      case "drain":
        this.#drain = listeners;
        break;
      case "finish":
        this.#finish = listeners;
        break;
      case "close":
        this.#close = listeners;
        break;
    }
  }
}

const NOTHING = new Uint8Array(0);
