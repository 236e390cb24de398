import koffi, { type LibraryHandle } from "koffi";
import { KernelError } from "#kernel/errors";

/** A bound C function: koffi checks the arguments at run time. */
export type NativeFunction = ReturnType<LibraryHandle["func"]>;

/** C prototypes of everything that is called in libc. 64-bit Linux only: `long` and pointers have 8 bytes. */
const PROTOTYPES = {
  socket: "int socket(int domain, int type, int protocol)",
  bind: "int bind(int fd, const void *address, uint32_t length)",
  connect: "int connect(int fd, const void *address, uint32_t length)",
  listen: "int listen(int fd, int backlog)",
  sendto:
    "int64_t sendto(int fd, const void *data, size_t length, int flags, const void *address, uint32_t addressLength)",
  recvfrom: "int64_t recvfrom(int fd, void *data, size_t length, int flags, void *address, void *addressLength)",
  getsockname: "int getsockname(int fd, void *address, void *length)",
  setsockopt: "int setsockopt(int fd, int level, int option, const void *value, uint32_t length)",
  getsockopt: "int getsockopt(int fd, int level, int option, void *value, void *length)",
  poll: "int poll(void *fds, uint64_t count, int timeoutMs)",
  open: "int open(const char *path, int flags, uint32_t mode)",
  close: "int close(int fd)",
  fcntl: "int fcntl(int fd, int command, int64_t argument)",
  ioctl: "int ioctl(int fd, uint64_t request, void *argument)",
  setns: "int setns(int fd, int type)",
  unshare: "int unshare(int flags)",
  mount: "int mount(const char *source, const char *target, const char *type, uint64_t flags, const char *data)",
  umount2: "int umount2(const char *target, int flags)",
  flock: "int flock(int fd, int operation)",
  accept4: "int accept4(int fd, void *address, void *addressLength, int flags)",
  recv: "int64_t recv(int fd, void *data, size_t length, int flags)",
  send: "int64_t send(int fd, const void *data, size_t length, int flags)",
  shutdown: "int shutdown(int fd, int how)",
  epoll_create1: "int epoll_create1(int flags)",
  epoll_ctl: "int epoll_ctl(int epoll, int operation, int fd, void *event)",
  epoll_wait: "int epoll_wait(int epoll, void *events, int count, int timeoutMs)",
  read: "int64_t read(int fd, void *data, size_t length)",
  capget: "int capget(void *header, void *data)",
  capset: "int capset(void *header, const void *data)",
  prctl: "int prctl(int option, uint64_t second, uint64_t third, uint64_t fourth, uint64_t fifth)",
  write: "int64_t write(int fd, const void *data, size_t length)",
  malloc_trim: "int malloc_trim(size_t keep)",
} as const;

type Libc = Readonly<Record<keyof typeof PROTOTYPES, NativeFunction>>;

/** Libraries are never released: a collected library could be unloaded while its functions are still used. */
const libraries = new Map<string, LibraryHandle>();
let loaded: Libc | undefined;

/** The functions of libc; it is loaded at the first call. */
export function libc(): Libc {
  loaded ??= bindFunctions(openLibrary("libc.so.6"), PROTOTYPES);
  return loaded;
}

function bindFunctions<Name extends string>(
  library: LibraryHandle,
  prototypes: Readonly<Record<Name, string>>,
): Readonly<Record<Name, NativeFunction>> {
  const entries = Object.entries<string>(prototypes).map(([name, prototype]) => [name, library.func(prototype)]);
  return Object.fromEntries(entries) as Record<Name, NativeFunction>;
}

/** Loads a shared library. Throws {@link KernelError} `unsupported` when it is not installed. */
export function openLibrary(file: string): LibraryHandle {
  try {
    const library = libraries.get(file) ?? koffi.load(file);
    libraries.set(file, library);
    return library;
  } catch (cause) {
    throw new KernelError("unsupported", `Cannot load ${file}: install its package`, { cause });
  }
}

/** Functions that the running program itself exports. Throws {@link KernelError} `unsupported` for a function that it does not export. */
export function openOwnSymbols<Name extends string>(
  prototypes: Readonly<Record<Name, string>>,
): Readonly<Record<Name, NativeFunction>> {
  try {
    const own = libraries.get("") ?? koffi.load(null);
    libraries.set("", own);
    return bindFunctions(own, prototypes);
  } catch (cause) {
    throw new KernelError(
      "unsupported",
      "This Node lacks what official builds export to addons: use an official build of Node 24",
      { cause },
    );
  }
}

/** The errno of the last failed call on this thread. */
export function lastErrno(): number {
  return koffi.errno();
}
