/*
 * The launcher that is installed as the CNI executable `coil`: it hands the runtime's call over to coild, and runs the standalone executable where it
 * cannot. Its process lives for a fraction of a millisecond besides coild's part. The messages are those of src/wire/cni-handover.
 */
#include "launcher.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
/* coild itself cancels a call after 60 s. */
#define PATIENCE_SECONDS 65
#define MIB 1048576
#define MAX_ENVIRONMENT_BYTES MIB
/* Environment and standard input. */
#define MAX_BODY_BYTES (4 * MIB)
#define MAX_TEXT_BYTES (4 * MIB)
/* An exit code of this: the call is another coild's, and was not begun. */
#define NOT_MINE 2

#define AF_UNIX 1
#define SOCK_STREAM 1
#define SOCK_CLOEXEC 02000000
#define SOL_SOCKET 1
#define SO_RCVTIMEO 20
#define SO_SNDTIMEO 21
#define MSG_NOSIGNAL 0x4000
#define SIGPIPE 13
#define F_GETFD 1
#define MFD_NOEXEC_SEAL 8

struct __attribute__((packed)) head {
  char magic[8];
  uint32_t environment_bytes, input_bytes;
  struct __attribute__((packed)) { uint16_t family; char path[108]; } address;
};
struct __attribute__((packed)) answer {
  uint8_t exit_code, descriptor, unused[2];
  uint32_t text_bytes;
  char text[MAX_TEXT_BYTES];
};
_Static_assert(sizeof(struct head) == 126, "the head of a call");

/* The only data of the file, so the file ends with it: an installer writes the path of the socket there. */
struct head head = {"CNICALL1", 0, 0, {AF_UNIX, ""}};

static struct __attribute__((packed)) {
  struct head head;
  /* One byte more than a call may have: when it is used, the call is too large. */
  char body[MAX_BODY_BYTES + 1];
} message;
static struct answer answer;

#define LOST FAULT(11, "coild did not answer: it ended, or took longer than " TEXT(PATIENCE_SECONDS) " s")
#define UNAVAILABLE FAULT(11, "coild cannot be reached, and coil" SUFFIX " cannot be run beside this file: run coil-installer again")
#define NO_OUTPUT FAULT(5, "standard output is closed, so there is no place for a result; nothing was begun")
#define UNWRITABLE FAULT(5, "the answer of coild cannot be written to standard output; a DEL removes what the call has made")
#define TOO_LARGE FAULT(7, "environment and network configuration are larger than 4 MiB")

/* Prints a text, and ends. */
static _Noreturn void finish(int descriptor, const char *text, long bytes, int code) {
  if (write_all(descriptor, text, bytes)) end(code);
  if (descriptor == STDOUT) write_all(STDERR, UNWRITABLE, sizeof UNWRITABLE - 1);
  end(1);
}
#define fail(descriptor, text) finish(descriptor, text, sizeof text - 1, 1)

/* By other variables the runtime of the standalone executable would run other code. */
static int is_of_cni(const char *variable) {
  return begins(variable, "CNI_");
}

static void copy_environment(char **variables) {
  for (; *variables != 0; variables += 1) {
    const char *at = *variables;
    do {
      if (message.head.environment_bytes == MAX_ENVIRONMENT_BYTES) fail(STDOUT, TOO_LARGE);
      message.body[message.head.environment_bytes++] = *at;
    } while (*at++ != 0);
  }
}

static void read_input(void) {
  char *input = message.body + message.head.environment_bytes;
  uint32_t room = sizeof message.body - message.head.environment_bytes;
  for (;;) {
    long bytes = call3(READ, STDIN, input + message.head.input_bytes, room - message.head.input_bytes);
    if (bytes == -EAGAIN) wait_for(STDIN, POLLIN);
    else if (bytes != -EINTR) {
      // A closed standard input is an empty one.
      if (bytes <= 0) return;
      message.head.input_bytes += bytes;
      if (message.head.input_bytes == room) fail(STDOUT, TOO_LARGE);
    }
  }
}

/* Sends the call to coild. Returns the socket, or -1: until all bytes are sent the call was not begun. */
static int send_call(void) {
  const struct { long seconds, microseconds; } patience = {PATIENCE_SECONDS, 0};
  int socket = call3(SOCKET, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  call5(SETSOCKOPT, socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  call5(SETSOCKOPT, socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (call3(CONNECT, socket, &message.head.address, sizeof message.head.address) != 0) return -1;
  const char *at = (const char *)&message;
  long left = sizeof message.head + message.head.environment_bytes + message.head.input_bytes;
  while (left > 0) {
    long sent = call6(SENDTO, socket, at, left, MSG_NOSIGNAL, 0, 0);
    if (sent == -EINTR) continue;
    if (sent <= 0) return -1;
    at += sent;
    left -= sent;
  }
  return socket;
}

/* Receives the whole answer. It never runs a call a second time: without an answer it ends. */
static void receive_answer(int socket) {
  const uint32_t text_at = sizeof answer - sizeof answer.text;
  uint32_t have = 0;
  while (have < text_at || have - text_at < answer.text_bytes) {
    // A longer text than may be is read up to the end of the memory, where this reads nothing.
    long bytes = call3(READ, socket, (char *)&answer + have, sizeof answer - have);
    if (bytes == -EINTR) continue;
    if (bytes <= 0) fail(STDOUT, LOST);
    have += bytes;
  }
}

/* The standalone executable gets the bytes of standard input that were read already. */
static void give_input_again(void) {
  // Linux 6.3 to 6.5 with vm.memfd_noexec=2 refuse a memory file that may be executed, and earlier ones the flag that says that it may not.
  int file = call3(MEMFD_CREATE, "stdin", MFD_NOEXEC_SEAL, 0);
  if (file < 0) file = call3(MEMFD_CREATE, "stdin", 0, 0);
  if (file < 0) fail(STDOUT, UNAVAILABLE);
  if (!write_all(file, message.body + message.head.environment_bytes, message.head.input_bytes)) fail(STDOUT, UNAVAILABLE);
  call3(LSEEK, file, 0, 0);
  // Where standard input is closed, the file has its number already.
  if (file == STDIN) return;
  call3(DUP3, file, STDIN, 0);
  call1(CLOSE, file);
}

_Noreturn void launch(long *stack) {
  struct process process = started(stack, is_of_cni);
  // An assignment of all of it would be a call of memcpy.
  for (unsigned long at = 0; at < sizeof head; at += 1) ((char *)&message.head)[at] = ((const char *)&head)[at];
  copy_environment(process.environment);
  // Without a variable of CNI the caller is a person: the standalone executable prints a help text, and standard input is not read.
  if (message.head.environment_bytes > 0) {
    // The next file that is opened, the socket, would get the number of a closed standard output, and the result.
    if (call3(FCNTL, STDOUT, F_GETFD, 0) < 0) fail(STDERR, NO_OUTPUT);
    read_input();
    int socket = send_call();
    if (socket >= 0) {
      receive_answer(socket);
      if (answer.exit_code != NOT_MINE) {
        // Where standard error is closed the socket has its number. A reader that is gone is an error, and not the end by a signal.
        static const long ignore[4] = {1 /* SIG_IGN */};
        call1(CLOSE, socket);
        call4(RT_SIGACTION, SIGPIPE, ignore, 0, 8);
        finish(answer.descriptor, answer.text, answer.text_bytes, answer.exit_code);
      }
    }
    give_input_again();
  }
  run_standalone(&process);
  fail(STDOUT, UNAVAILABLE);
}
