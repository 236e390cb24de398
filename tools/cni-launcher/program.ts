/** The launcher's instructions, for any processor (docs/design/cni-executable.md). */
import {
  ANSWER,
  CALL,
  MAX_BODY_BYTES,
  MAX_TEXT_BYTES,
  NOT_MINE,
  STANDALONE_SUFFIX,
} from "../../src/wire/cni-handover/index.ts";
import type { Condition, Encoded, Encoder, Register, SystemCall } from "./machine.ts";

/** The time for which the launcher waits for coild, in seconds; coild itself cancels a call after 60 s. */
export const PATIENCE_SECONDS = 65;
/** The maximum size of the environment's part of a call, in bytes. */
const MAX_ENVIRONMENT_BYTES = 1024 * 1024;

const error = (code: number, msg: string): string => `${JSON.stringify({ cniVersion: "1.1.0", code, msg })}\n`;

/** The errors that the launcher itself prints: on standard output, and if standard output is the fault, on standard error. */
export const FAULTS = {
  lost: error(11, `coild did not answer: it ended, or took longer than ${PATIENCE_SECONDS} s`),
  unavailable: error(
    11,
    `coild cannot be reached, and ${`coil${STANDALONE_SUFFIX}`} cannot be run beside this file: run coil-installer again`,
  ),
  "no-output": error(5, "standard output is closed, so there is no place for a result; nothing was begun"),
  unwritable: error(
    5,
    "the answer of coild cannot be written to standard output; a DEL removes what the call has made",
  ),
  "too-large": error(7, `environment and network configuration are larger than ${MAX_BODY_BYTES / 1024 / 1024} MiB`),
} as const;

/** The error of a launcher that only cleans the environment. */
export const NO_STANDALONE = error(
  999,
  `the file whose name is that of this one and ${STANDALONE_SUFFIX} cannot be run beside it: run coil-installer again`,
);

/**
 * - `hand-over`: `coil`, which gives the call to coild, and runs the standalone executable where that cannot be.
 * - `clean`: `vpc-neutron` and `vpc-alcor`, which run their standalone executable without the variables of its runtime.
 */
export type LauncherKind = "hand-over" | "clean";

/** Texts in the file of a launcher, by label. */
export function textsOf(kind: LauncherKind): Readonly<Record<string, Uint8Array>> {
  const faults = kind === "clean" ? { unavailable: NO_STANDALONE } : FAULTS;
  return {
    ...Object.fromEntries(
      Object.entries(faults).flatMap(([name, text]) => [
        [`${name} text`, Buffer.from(text)],
        [`${name} text end`, Buffer.alloc(0)],
      ]),
    ),
    ...TEXTS,
  };
}

const TEXTS: Readonly<Record<string, Uint8Array>> = {
  suffix: Buffer.from(`${STANDALONE_SUFFIX}\0`),
  "memory name": Buffer.from("stdin\0"),
  "own file name": Buffer.from("/proc/self/exe\0"),
  // struct sigaction of SIG_IGN, as large as that of any processor
  ignore: Buffer.from(BigUint64Array.of(1n, 0n, 0n, 0n).buffer),
  // struct timeval
  patience: Buffer.from(BigUint64Array.of(BigInt(PATIENCE_SECONDS), 0n).buffer),
};

/** Places in memory after the head of the call, which is the end of the file: offsets from that head. */
const ANSWER_AT = CALL.body + MAX_BODY_BYTES + 2;
export const MEMORY: Readonly<Record<string, number>> = {
  head: 0,
  socket: CALL.address,
  body: CALL.body,
  "environment limit": CALL.body + MAX_ENVIRONMENT_BYTES,
  // One byte more than a call may have: when it is used, the call is too large.
  "body limit": CALL.body + MAX_BODY_BYTES + 1,
  answer: ANSWER_AT,
  "answer limit": ANSWER_AT + ANSWER.text + MAX_TEXT_BYTES,
  // struct pollfd
  poll: ANSWER_AT + ANSWER.text + MAX_TEXT_BYTES,
};
/** The memory from the head on, in bytes. */
export const MEMORY_BYTES = ANSWER_AT + ANSWER.text + MAX_TEXT_BYTES + 8;

const [EINTR, EAGAIN] = [-4, -11];
const [POLLIN, POLLOUT] = [1, 4];
const [AF_UNIX, SOCK_STREAM, SOCK_CLOEXEC, SOL_SOCKET, SO_RCVTIMEO, SO_SNDTIMEO] = [1, 1, 0o2000000, 1, 20, 21];
const MSG_NOSIGNAL = 0x4000;
const SIGPIPE = 13;
const SIGNAL_SET_BYTES = 8;
const F_GETFD = 1;
/** include/uapi/linux/memfd.h */
const MFD_NOEXEC_SEAL = 8;
const [STDOUT, STDERR] = [1, 2];
const AT_EXECFN = 31;
const AT_FDCWD = -100;
const PATH_MAX = 4096;
const SOCKADDR_BYTES = CALL.body - CALL.address;
const CNI_ = Buffer.from("CNI_").readUInt32LE();
/** Variables by which Bun runs other code, or becomes another program: BUN_OPTIONS, BUN_BE_BUN, BUN_INSPECT and more. */
const BUN_ = Buffer.from("BUN_").readUInt32LE();

/** An argument of a system call: a number, the value of a register, or a place. */
type Argument = number | Register | { readonly place: string };

/** An instruction, or the name of the place of the next one. */
export type Line = Encoded | { readonly label: string };

/** The program of a launcher. Registers are named after their usual content. */
export function program(encoder: Encoder, kind: LauncherKind): Line[] {
  const { constant, address, move, add, subtract, addConstant, load, store, jump } = encoder;
  const when = (condition: Condition, left: Register, right: Register | number, label: string): Line =>
    encoder.jumpIf(condition, left, right, label);
  const call = (name: SystemCall, ...given: readonly Argument[]): Line[] => [
    ...given.map((argument, at): Line => {
      const to = `argument${at}` as Register;
      if (typeof argument === "number") return constant(to, argument);
      return typeof argument === "string" ? move(to, argument) : address(to, argument.place);
    }),
    encoder.systemCall(name),
  ];
  const place = (name: string): Argument => ({ place: name });
  const label = (name: string): Line => ({ label: name });
  /** `argument2` is the distance from a register to the end; then the call with a descriptor and that range. */
  const onRange = (name: SystemCall, descriptor: Argument, from: Register, ...more: readonly Argument[]): Line[] => {
    const [first, second, , ...others] = call(name, descriptor, from, 0, ...more);
    return [first, second, subtract("argument2", from), ...others].filter((line) => line !== undefined);
  };
  const poll = (descriptor: Register | number, events: number): Line[] => [
    address("scratch", "poll"),
    typeof descriptor === "number" ? constant("result", descriptor) : move("result", descriptor),
    store(4, "result", "scratch", 0),
    constant("result", events),
    store(4, "result", "scratch", 4),
    ...call("ppoll", place("poll"), 1, 0, 0, 0),
  ];
  const fault = (name: keyof typeof FAULTS, descriptor: number): Line[] => [
    label(name),
    address("end", `${name} text`),
    address("at", `${name} text end`),
    constant("descriptor", descriptor),
    constant("name", 1),
    jump("write"),
  ];

  const start: readonly Line[] = [
    // The stack: argc, pointers to arguments, 0, pointers to the environment, 0, the auxiliary vector.
    encoder.fromStackPointer("stack"),
    load(8, "environment", "stack", 0),
    add("environment", "environment"),
    add("environment", "environment"),
    add("environment", "environment"),
    add("environment", "stack"),
    addConstant("environment", 16),
  ];

  /** Leaves variables of the standalone executable's runtime out; delegates need the others, such as PATH. */
  const withoutBun: readonly Line[] = [
    move("at", "environment"),
    move("name", "environment"),
    label("variable"),
    load(8, "scratch", "at", 0),
    addConstant("at", 8),
    when("equal", "scratch", 0, "variables end"),
    load(4, "result", "scratch", 0),
    when("equal", "result", BUN_, "variable"),
    store(8, "scratch", "name", 0),
    addConstant("name", 8),
    jump("variable"),
    label("variables end"),
    store(8, "scratch", "name", 0),
  ];

  const variablesOfCni: readonly Line[] = [
    // Copies the variables that begin with CNI_ after the head. They alone stay in the environment: by others the runtime of the standalone executable
    // would run other code.
    move("at", "environment"),
    move("name", "environment"),
    address("end", "body"),
    address("descriptor", "environment limit"),
    label("variable"),
    load(8, "scratch", "at", 0),
    addConstant("at", 8),
    when("equal", "scratch", 0, "variables end"),
    load(4, "result", "scratch", 0),
    when("not-equal", "result", CNI_, "variable"),
    store(8, "scratch", "name", 0),
    addConstant("name", 8),
    label("copy variable"),
    when("equal", "end", "descriptor", "too-large"),
    load(1, "result", "scratch", 0),
    store(1, "result", "end", 0),
    addConstant("scratch", 1),
    addConstant("end", 1),
    when("not-equal", "result", 0, "copy variable"),
    jump("variable"),
    label("variables end"),
    store(8, "scratch", "name", 0),
    address("scratch", "body"),
    move("result", "end"),
    subtract("result", "scratch"),
    address("scratch", "head"),
    store(4, "result", "scratch", CALL.environmentBytes),
  ];

  const ownPath: readonly Line[] = [
    // The path of this file, as it was called.
    constant("name", 0),
    label("auxiliary"),
    load(8, "scratch", "at", 0),
    when("equal", "scratch", 0, "auxiliary end"),
    load(8, "result", "at", 8),
    addConstant("at", 16),
    when("not-equal", "scratch", AT_EXECFN, "auxiliary"),
    move("name", "result"),
    label("auxiliary end"),
  ];

  const handOver: readonly Line[] = [
    // Without a CNI variable the caller is a user: the standalone executable prints a help text. Standard input is then a terminal and is
    // not read.
    address("scratch", "body"),
    when("equal", "end", "scratch", "path"),

    // If standard output is closed, the next file that is opened, coild's socket, would get its number, and the result.
    ...call("fcntl", STDOUT, F_GETFD),
    when("less", "result", 0, "no-output"),

    // Copies standard input after the variables.
    label("read"),
    address("argument2", "body limit"),
    ...onRange("read", 0, "end"),
    when("equal", "result", EINTR, "read"),
    when("equal", "result", EAGAIN, "wait for input"),
    when("less-or-equal", "result", 0, "input end"),
    add("end", "result"),
    address("scratch", "body limit"),
    when("not-equal", "end", "scratch", "read"),
    jump("too-large"),
    label("wait for input"),
    ...poll(0, POLLIN),
    jump("read"),
    label("input end"),
    address("scratch", "head"),
    load(4, "at", "scratch", CALL.environmentBytes),
    move("result", "end"),
    subtract("result", "at"),
    address("at", "body"),
    subtract("result", "at"),
    store(4, "result", "scratch", CALL.inputBytes),

    // Sends the call to coild. If a step fails before all bytes are sent, the call was not begun.
    ...call("socket", AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
    when("less", "result", 0, "stand alone"),
    move("descriptor", "result"),
    ...call("setsockopt", "descriptor", SOL_SOCKET, SO_RCVTIMEO, place("patience"), 16),
    ...call("setsockopt", "descriptor", SOL_SOCKET, SO_SNDTIMEO, place("patience"), 16),
    ...call("connect", "descriptor", place("socket"), SOCKADDR_BYTES),
    when("not-equal", "result", 0, "stand alone"),
    address("at", "head"),
    label("send"),
    move("argument2", "end"),
    ...onRange("sendto", "descriptor", "at", MSG_NOSIGNAL, 0, 0),
    when("equal", "result", EINTR, "send"),
    when("less-or-equal", "result", 0, "stand alone"),
    add("at", "result"),
    when("not-equal", "at", "end", "send"),

    // The answer.
    address("at", "answer"),
    label("receive"),
    address("argument2", "answer limit"),
    ...onRange("read", "descriptor", "at"),
    when("equal", "result", EINTR, "receive"),
    when("less-or-equal", "result", 0, "lost"),
    add("at", "result"),
    address("scratch", "answer"),
    move("result", "at"),
    subtract("result", "scratch"),
    when("below", "result", ANSWER.text, "receive"),
    load(4, "argument0", "scratch", ANSWER.textBytes),
    addConstant("argument0", ANSWER.text),
    when("below", "result", "argument0", "receive"),
    load(1, "result", "scratch", ANSWER.exitCode),
    when("equal", "result", NOT_MINE, "stand alone"),
    move("name", "result"),
    move("at", "scratch"),
    add("at", "argument0"),
    move("end", "scratch"),
    addConstant("end", ANSWER.text),
    // Where standard error is closed the socket has its number. A reader that is gone is an error, not the end by a signal.
    ...call("close", "descriptor"),
    ...call("rt_sigaction", SIGPIPE, place("ignore"), 0, SIGNAL_SET_BYTES),
    address("scratch", "answer"),
    load(1, "descriptor", "scratch", ANSWER.descriptor),
  ];

  const output: readonly Line[] = [
    // The answer's text is from `end` to `at`, and the exit code is in `name`.
    label("write"),
    when("equal", "end", "at", "exit"),
    move("argument2", "at"),
    ...onRange("write", "descriptor", "end"),
    when("equal", "result", EINTR, "write"),
    when("equal", "result", EAGAIN, "wait for output"),
    when("less-or-equal", "result", 0, "fail"),
    add("end", "result"),
    jump("write"),
    label("wait for output"),
    ...poll("descriptor", POLLOUT),
    jump("write"),
    label("fail"),
    ...(kind === "clean" ? [] : [when("equal", "descriptor", STDOUT, "unwritable")]),
    constant("name", 1),
    label("exit"),
    ...call("exit_group", "name"),
  ];

  const inputAgain: readonly Line[] = [
    // The standalone executable gets the bytes of standard input that were already read.
    // Kernels 6.3 to 6.5 with vm.memfd_noexec=2 refuse a memory file that may be executed, and earlier ones the flag that says that it may not.
    label("stand alone"),
    ...call("memfd_create", place("memory name"), MFD_NOEXEC_SEAL),
    when("less", "result", 0, "older kernel"),
    label("memory"),
    move("descriptor", "result"),
    address("scratch", "head"),
    load(4, "result", "scratch", CALL.environmentBytes),
    address("at", "body"),
    add("at", "result"),
    label("refill"),
    when("equal", "at", "end", "refilled"),
    move("argument2", "end"),
    ...onRange("write", "descriptor", "at"),
    when("equal", "result", EINTR, "refill"),
    when("less-or-equal", "result", 0, "unavailable"),
    add("at", "result"),
    jump("refill"),
    label("refilled"),
    ...call("lseek", "descriptor", 0, 0),
    when("equal", "descriptor", 0, "path"),
    ...call("dup3", "descriptor", 0, 0),
    ...call("close", "descriptor"),
  ];

  const standalone: readonly Line[] = [
    // First beside the path by which this file was called, then, for a link, beside the file itself.
    label("path"),
    addConstant("stack", 8),
    constant("descriptor", 0),
    when("equal", "name", 0, "own file"),
    address("at", "answer"),
    label("copy path"),
    load(1, "result", "name", 0),
    when("equal", "result", 0, "path end"),
    store(1, "result", "at", 0),
    addConstant("name", 1),
    addConstant("at", 1),
    jump("copy path"),
    label("path end"),
    address("name", "suffix"),
    label("copy suffix"),
    load(1, "result", "name", 0),
    store(1, "result", "at", 0),
    addConstant("name", 1),
    addConstant("at", 1),
    when("not-equal", "result", 0, "copy suffix"),
    ...call("execve", place("answer"), "stack", "environment"),
    when("not-equal", "descriptor", 0, "unavailable"),
    label("own file"),
    constant("descriptor", 1),
    ...call("readlinkat", AT_FDCWD, place("own file name"), place("answer"), PATH_MAX),
    when("less-or-equal", "result", 0, "unavailable"),
    address("at", "answer"),
    add("at", "result"),
    jump("path end"),
  ];

  if (kind === "clean")
    return [...start, ...withoutBun, ...ownPath, ...standalone, ...output, ...fault("unavailable", STDOUT)];
  return [
    ...start,
    ...variablesOfCni,
    ...ownPath,
    ...handOver,
    ...output,
    ...inputAgain,
    ...standalone,

    label("older kernel"),
    ...call("memfd_create", place("memory name"), 0),
    when("less", "result", 0, "unavailable"),
    jump("memory"),

    ...fault("unavailable", STDOUT),
    ...fault("too-large", STDOUT),
    ...fault("lost", STDOUT),
    ...fault("no-output", STDERR),
    ...fault("unwritable", STDERR),
  ];
}
