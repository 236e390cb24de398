/*
 * The part of both launchers (docs/design/cni-executable.md) that a C library would have: the start of a process, system calls by their numbers, and
 * the start of the standalone executable. Everything that depends on the processor is here.
 */
#include <stdint.h>

#define STDIN 0
#define STDOUT 1
#define STDERR 2
#define EINTR 4
#define EAGAIN 11
#define AT_FDCWD -100
#define PATH_MAX 4096
#define POLLIN 1
#define POLLOUT 4

/* The file that a launcher runs is beside its own, under its name with this behind (STANDALONE_SUFFIX of src/wire/cni-handover). */
#define SUFFIX "-standalone"

/* An error of CNI, as a launcher prints it. */
#define FAULT(code, text) "{\"cniVersion\":\"1.1.0\",\"code\":" #code ",\"msg\":\"" text "\"}\n"

#if defined(__x86_64__)
/* arch/x86/entry/syscalls/syscall_64.tbl */
enum {
  READ = 0, WRITE = 1, CLOSE = 3, LSEEK = 8, RT_SIGACTION = 13, SOCKET = 41, CONNECT = 42, SENDTO = 44, SETSOCKOPT = 54, EXECVE = 59, FCNTL = 72,
  EXIT_GROUP = 231, READLINKAT = 267, PPOLL = 271, DUP3 = 292, MEMFD_CREATE = 319
};
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call launch\n");

static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return number;
}
#elif defined(__aarch64__)
/* include/uapi/asm-generic/unistd.h */
enum {
  DUP3 = 24, FCNTL = 25, CLOSE = 57, LSEEK = 62, READ = 63, WRITE = 64, PPOLL = 73, READLINKAT = 78, EXIT_GROUP = 94, RT_SIGACTION = 134,
  SOCKET = 198, CONNECT = 203, SENDTO = 206, SETSOCKOPT = 208, EXECVE = 221, MEMFD_CREATE = 279
};
__asm__(".globl _start\n_start: mov x0, sp\n bl launch\n");

static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
#error "a launcher needs the system calls of this processor"
#endif

#define call1(number, a) call(number, (long)(a), 0, 0, 0, 0, 0)
#define call3(number, a, b, c) call(number, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define call4(number, a, b, c, d) call(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define call5(number, a, b, c, d, e) call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define call6(number, a, b, c, d, e, f) call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* The stack as the kernel leaves it: argc, the arguments, 0, the environment, 0, the auxiliary vector. */
struct process {
  char **arguments;
  char **environment;
  /* The path by which this file was called; 0 if the kernel does not say it. */
  const char *path;
};

static _Noreturn void end(int code) {
  for (;;) call1(EXIT_GROUP, code);
}

/* Descriptors that do not block are the runtime's, so their flags are not changed. */
static void wait_for(int descriptor, short events) {
  struct { int fd; short events, revents; } poll = {descriptor, events, 0};
  call5(PPOLL, &poll, 1, 0, 0, 0);
}

/* Writes all of a text; returns 0 if that cannot be. */
static int write_all(int descriptor, const char *text, long bytes) {
  while (bytes > 0) {
    long written = call3(WRITE, descriptor, text, bytes);
    if (written == -EAGAIN) wait_for(descriptor, POLLOUT);
    else if (written <= 0 && written != -EINTR) return 0;
    if (written <= 0) continue;
    text += written;
    bytes -= written;
  }
  return 1;
}

/* The process, with those variables of its environment alone for which `keeps` is true. */
static struct process started(long *stack, int (*keeps)(const char *)) {
  struct process process = {(char **)(stack + 1), (char **)(stack + *stack + 2), 0};
  char **from = process.environment, **to = from;
  for (; *from != 0; from += 1) if (keeps(*from)) *to++ = *from;
  *to = 0;
  struct { long type; const char *value; } *auxiliary = (void *)(from + 1);
  for (; auxiliary->type != 0; auxiliary += 1) if (auxiliary->type == 31 /* AT_EXECFN */) process.path = auxiliary->value;
  return process;
}

static int begins(const char *text, const char *with) {
  while (*with != 0) if (*text++ != *with++) return 0;
  return 1;
}

/* The path by which this file was called; 0 bytes if the kernel does not say it. */
static long copy_path(const struct process *process, char *to) {
  long length = 0;
  if (process->path == 0) return 0;
  for (; process->path[length] != 0 && length < PATH_MAX; length += 1) to[length] = process->path[length];
  return length;
}

/* Becomes the standalone executable: first beside the path by which this file was called, then, for a link, beside the file itself. Returns if neither runs. */
static void run_standalone(const struct process *process) {
  static char path[2 * PATH_MAX];
  for (int from_link = 0; from_link < 2; from_link += 1) {
    long length = from_link ? call4(READLINKAT, AT_FDCWD, "/proc/self/exe", path, PATH_MAX) : copy_path(process, path);
    if (length <= 0) continue;
    for (unsigned long at = 0; at < sizeof SUFFIX; at += 1) path[length++] = SUFFIX[at];
    call3(EXECVE, path, process->arguments, process->environment);
  }
}
