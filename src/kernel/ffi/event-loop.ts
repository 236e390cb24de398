import koffi from "koffi";
import { KernelError } from "#kernel/errors";
import { type NativeFunction, openOwnSymbols } from "./library.ts";

/** UV_POLL of uv_handle_type, and UV_READABLE (include/uv.h). */
const UV_POLL = 8;
const UV_READABLE = 1;
/** Where a `uv_handle_t` has its flags (include/uv.h; the same in all of libuv 1 on 64-bit systems), and two of them (src/uv-common.h). */
const FLAGS_OFFSET = 88;
const UV_HANDLE_REF = 0x08;
const UV_HANDLE_INTERNAL = 0x10;

/** Watches one descriptor in the event loop of the calling thread. */
export interface LoopWatch {
  /** Sets whether the watch keeps the thread alive. A new watch does not. */
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
  /** Called only by its address; here so that a Node without it is detected. */
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
 * Lets this thread's event loop go round whenever the descriptor is readable, and calls nobody: an immediate that is pending runs in that
 * round, also one with `unref`, for which the loop does not wait. A call from libuv into JavaScript would cost more than all else of the
 * round. Throws {@link KernelError} `unsupported` where Node was built without its exports.
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
  // A function of one argument, so that it is a hook as it is: no JavaScript runs any more when a thread is ended by force.
  const stop = uv.address(null, "uv_poll_stop");
  uv.atEnd(isolate, stop, handle);
  // As a callback: it reads the handle and does nothing.
  uv.start(handle, UV_READABLE, uv.address(null, "uv_handle_get_type"));
  return {
    keepAlive: (isKept) => void (isKept ? uv.ref(handle) : uv.unref(handle)),
    close: () => {
      uv.notAtEnd(isolate, stop, handle);
      uv.stop(handle);
      // The memory stays: libuv holds it until the loop's next turn. Once for each thread that ends.
      uv.close(handle, null);
    },
  };
}

/**
 * Node aborts the process when a thread's loop still has a handle at the thread's end, which cannot be helped where the thread is ended from
 * outside: libuv leaves out handles that it takes for its own. Nothing is done where the flags are not where they are known to be.
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
