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
  /**
   * The peer has closed the connection: nothing can be sent any more, and bytes that it sent before are still to be read. Emitted at most
   * once, also while the stream is paused. Only streams of UNIX sockets emit it: on TCP the kernel cannot tell a close from an end of sending.
   */
  hangUp: [];
  /** The descriptor is closed. `errored` is set if the connection was lost. It is the last event. */
  close: [];
}

/** The object that a stream serves: it gets the events of {@link ByteStreamEvents}. */
export interface StreamOwner {
  onData(chunk: Uint8Array): void;
  onEnd(): void;
  onDrain(): void;
  onFinish(): void;
  onHangUp(): void;
  onClose(): void;
}

type Name = keyof ByteStreamEvents;
type Listener<N extends Name> = (...args: ByteStreamEvents[N]) => void;
/** A listener of any event; the field that holds the listener decides which event. */
type AnyListener = (chunk: Uint8Array) => void;
/** A listener that runs once. An object for each takes half of the memory of a function that wraps the listener. */
class Once {
  readonly listener: AnyListener;
  isOver = false;

  constructor(listener: AnyListener) {
    this.listener = listener;
  }
}

type Entry = AnyListener | Once;
/** Nearly always none or one. */
type Listeners = Entry | readonly Entry[] | undefined;

/**
 * The listeners of a stream, one field for each of its six events. Node.js's `EventEmitter` makes a dictionary for each emitter, which
 * takes more CPU time than the system calls that open a short connection.
 */
export abstract class StreamListeners {
  #owner: StreamOwner | undefined;
  #data: Listeners;
  #end: Listeners;
  #drain: Listeners;
  #finish: Listeners;
  #hangUp: Listeners;
  #close: Listeners;

  /**
   * Sets the owner, which gets each later event before the listeners. For connections that are many: a function for each event takes several
   * times the memory of the owner itself.
   */
  setOwner(owner: StreamOwner): void {
    this.#owner = owner;
  }

  on<N extends Name>(name: N, listener: Listener<N>): this {
    return this.#add(name, listener as AnyListener);
  }

  once<N extends Name>(name: N, listener: Listener<N>): this {
    return this.#add(name, new Once(listener as AnyListener));
  }

  /** Removes the listener that was added last. Does nothing if it is not there. */
  off<N extends Name>(name: N, listener: Listener<N>): this {
    this.#remove(name, (one) => one === listener || (one instanceof Once && one.listener === listener));
    return this;
  }

  /** Calls the owner, and the present listeners in the order in which they were added. An error of one is thrown to the caller. */
  protected emit(name: "data", chunk: Uint8Array): void;
  protected emit(name: Exclude<Name, "data">): void;
  protected emit(name: Name, chunk: Uint8Array = NOTHING): void {
    if (this.#owner !== undefined) callOwner(this.#owner, name, chunk);
    const listeners = this.#of(name);
    if (listeners === undefined) return;
    if (typeof listeners === "function") listeners(chunk);
    else if (listeners instanceof Once) this.#callOnce(name, listeners, chunk);
    else {
      for (const one of listeners) {
        if (typeof one === "function") one(chunk);
        else this.#callOnce(name, one, chunk);
      }
    }
  }

  #callOnce(name: Name, once: Once, chunk: Uint8Array): void {
    // An event within a listener may have called it.
    if (once.isOver) return;
    once.isOver = true;
    this.#remove(name, (one) => one === once);
    once.listener(chunk);
  }

  #add(name: Name, added: Entry): this {
    const before = this.#of(name);
    if (before === undefined) this.#set(name, added);
    else this.#set(name, Array.isArray(before) ? before.concat(added) : [before as Entry, added]);
    return this;
  }

  #remove(name: Name, isWanted: (one: Entry) => boolean): void {
    const before = this.#of(name);
    if (before === undefined) return;
    if (typeof before === "function" || before instanceof Once) {
      if (isWanted(before)) this.#set(name, undefined);
      return;
    }
    const at = before.findLastIndex(isWanted);
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
      case "hangUp":
        return this.#hangUp;
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
      case "hangUp":
        this.#hangUp = listeners;
        break;
      case "close":
        this.#close = listeners;
        break;
    }
  }
}

function callOwner(owner: StreamOwner, name: Name, chunk: Uint8Array): void {
  switch (name) {
    case "data":
      owner.onData(chunk);
      break;
    case "end":
      owner.onEnd();
      break;
    case "drain":
      owner.onDrain();
      break;
    case "finish":
      owner.onFinish();
      break;
    case "hangUp":
      owner.onHangUp();
      break;
    case "close":
      owner.onClose();
      break;
  }
}

const NOTHING = new Uint8Array(0);
