import koffi from "koffi";
import { KernelError } from "#kernel/errors";
import { type NativeFunction, openOwnSymbols } from "./library.ts";

/** UV_POLL of uv_handle_type, and UV_READABLE (include/uv.h). */
const UV_POLL = 8;
const UV_READABLE = 1;

/** Watches one descriptor in the event loop of the calling thread. */
export interface LoopWatch {
  /** Keeps the thread alive, or not. Not, at first. */
  keepAlive(isKept: boolean): void;
  /** Before the thread ends: a loop that still has a watch cannot be closed, and Node aborts. */
  close(): void;
}

/** What Node exports for addons: its event loop (node.h) and libuv's watch of a descriptor (uv.h, uv_poll_t). */
const PROTOTYPES = {
  isolate: "void *_ZN2v87Isolate13TryGetCurrentEv()",
  loop: "void *_ZN4node19GetCurrentEventLoopEPN2v87IsolateE(void *isolate)",
  handleSize: "size_t uv_handle_size(int type)",
  init: "int uv_poll_init(void *loop, void *handle, int fd)",
  start: "int uv_poll_start(void *handle, int events, void *callback)",
  stop: "int uv_poll_stop(void *handle)",
  close: "void uv_close(void *handle, void *callback)",
  ref: "void uv_ref(void *handle)",
  unref: "void uv_unref(void *handle)",
} as const;

type Uv = Readonly<Record<keyof typeof PROTOTYPES, NativeFunction>>;
let loaded: { readonly uv: Uv; readonly callback: ReturnType<typeof koffi.pointer> } | undefined;

function load(): NonNullable<typeof loaded> {
  loaded ??= {
    uv: openOwnSymbols(PROTOTYPES),
    callback: koffi.pointer(koffi.proto("void isthmus_poll_callback(void *handle, int status, int events)")),
  };
  return loaded;
}

/**
 * Calls `onReadable` in each turn of this thread's event loop in which the descriptor is readable. It must not throw, and is no place
 * for work: what it starts with `setImmediate` runs in the same turn. Throws {@link KernelError} `unsupported` where Node was built
 * without its exports.
 */
export function watchReadable(fd: number, onReadable: () => void): LoopWatch {
  const { uv, callback } = load();
  const handle = koffi.alloc("uint8_t", Number(uv.handleSize(UV_POLL)));
  const registered = koffi.register(onReadable, callback);
  const fault = Number(uv.init(uv.loop(uv.isolate()), handle, fd)) || Number(uv.start(handle, UV_READABLE, registered));
  if (fault !== 0) throw KernelError.fromErrno(-fault, `watch descriptor ${fd} in the event loop`);
  uv.unref(handle);
  return {
    keepAlive: (isKept) => void (isKept ? uv.ref(handle) : uv.unref(handle)),
    close: () => {
      uv.stop(handle);
      // The memory stays: libuv holds it until the loop's next turn. Once for each thread that ends.
      uv.close(handle, null);
      koffi.unregister(registered);
    },
  };
}
