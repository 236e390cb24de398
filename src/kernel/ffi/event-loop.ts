import koffi from "koffi";
import { KernelError } from "#kernel/errors";
import { type NativeFunction, openOwnSymbols } from "./library.ts";

/** UV_POLL of uv_handle_type, and UV_READABLE (include/uv.h). */
const UV_POLL = 8;
const UV_READABLE = 1;
/**
 * The offset of the flags in a `uv_handle_t` (include/uv.h; the same in all of libuv 1 on 64-bit systems), and two of them
 * (src/uv-common.h).
 */
const FLAGS_OFFSET = 88;
const UV_HANDLE_REF = 0x08;
const UV_HANDLE_INTERNAL = 0x10;

/** Watches one descriptor in the event loop of the calling thread. */
export interface LoopWatch {
  /** Sets whether the watch keeps the thread alive. A new watch does not keep it alive. */
  keepAlive(isKept: boolean): void;
  /** Ends the watch. A thread can also end without this call. */
  close(): void;
}

/** Functions that Node exports for addons: its event loop (node.h) and libuv's watch of a descriptor (uv.h, uv_poll_t). */
const PROTOTYPES = {
  isolate: "void *_ZN2v87Isolate13TryGetCurrentEv()",
  loop: "void *_ZN4node19GetCurrentEventLoopEPN2v87IsolateE(void *isolate)",
  atEnd: "void _ZN4node25AddEnvironmentCleanupHookEPN2v87IsolateEPFvPvES3_(void *isolate, void *hook, void *argument)",
  notAtEnd:
    "void _ZN4node28RemoveEnvironmentCleanupHookEPN2v87IsolateEPFvPvES3_(void *isolate, void *hook, void *argument)",
  address: "void *dlsym(void *library, const char *name)",
  handleSize: "size_t uv_handle_size(int type)",
  init: "int uv_poll_init(void *loop, void *handle, int fd)",
  start: "int uv_poll_start(void *handle, int events, void *callback)",
  stop: "int uv_poll_stop(void *handle)",
  /** Called only by its address; it is declared here so that a Node without it is detected. */
  handleType: "int uv_handle_get_type(void *handle)",
  close: "void uv_close(void *handle, void *callback)",
  ref: "void uv_ref(void *handle)",
  unref: "void uv_unref(void *handle)",
} as const;

type Uv = Readonly<Record<keyof typeof PROTOTYPES, NativeFunction>>;
let loaded: Uv | undefined;

function load(): Uv {
  loaded ??= openOwnSymbols(PROTOTYPES);
  return loaded;
}

/**
 * Makes this thread's event loop run a round whenever the descriptor is readable, without a callback: a pending immediate runs in that
 * round, also an immediate with `unref`, for which the loop does not wait. A call from libuv into JavaScript would take more time than the
 * rest of the round. Throws {@link KernelError} `unsupported` if Node was built without its exports.
 */
export function watchReadable(fd: number): LoopWatch {
  const uv = load();
  const handle = koffi.alloc("uint8_t", Number(uv.handleSize(UV_POLL)));
  const isolate = uv.isolate();
  const fault = Number(uv.init(uv.loop(isolate), handle, fd));
  if (fault !== 0) {
    koffi.free(handle);
    throw KernelError.fromErrno(-fault, `watch descriptor ${fd} in the event loop`);
  }
  uv.unref(handle);
  markInternal(handle);
  // This C function has one argument and can be used directly as a cleanup hook: when a thread is terminated by force, JavaScript does not
  // run any more.
  const stop = uv.address(null, "uv_poll_stop");
  uv.atEnd(isolate, stop, handle);
  // This C function is used as the callback: it reads the handle and has no effect.
  uv.start(handle, UV_READABLE, uv.address(null, "uv_handle_get_type"));
  return {
    keepAlive: (isKept) => void (isKept ? uv.ref(handle) : uv.unref(handle)),
    close: () => {
      uv.notAtEnd(isolate, stop, handle);
      uv.stop(handle);
      // The memory is not freed, because libuv uses it until the loop's next round. This happens once for each thread that ends.
      uv.close(handle, null);
    },
  };
}

/**
 * Node aborts the process if a thread's loop still has a handle when the thread ends, which cannot be avoided if the thread is terminated
 * from outside. libuv ignores handles that are marked as internal, so this function marks the handle. It has no effect if the flags are not
 * at the expected offset.
 */
function markInternal(handle: unknown): void {
  const uv = load();
  const flags = (): unknown => koffi.decode(handle, FLAGS_OFFSET, "uint32_t");
  const before = flags();
  uv.ref(handle);
  const isKnown = before === 0 && flags() === UV_HANDLE_REF;
  uv.unref(handle);
  if (isKnown) koffi.encode(handle, FLAGS_OFFSET, "uint32_t", UV_HANDLE_INTERNAL);
}
