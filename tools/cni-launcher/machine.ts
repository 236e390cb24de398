/**
 * The registers and instructions that the launcher is written in. Each processor has an encoder for them; every processor supports all of
 * them.
 */

/** Registers whose values stay over a system call, arguments of system calls, and two that a system call may change. */
export type Register =
  | "stack"
  | "environment"
  | "end"
  | "descriptor"
  | "name"
  | "at"
  | `argument${0 | 1 | 2 | 3 | 4 | 5}`
  | "result"
  | "scratch";

/** Comparisons; `below` compares unsigned numbers. */
export type Condition = "equal" | "not-equal" | "below" | "less" | "less-or-equal";

export type SystemCall =
  | "read"
  | "write"
  | "close"
  | "fcntl"
  | "rt_sigaction"
  | "lseek"
  | "ppoll"
  | "socket"
  | "connect"
  | "sendto"
  | "setsockopt"
  | "execve"
  | "exit_group"
  | "dup3"
  | "memfd_create"
  | "readlinkat";

/** Bytes of one instruction; those that name a label are encoded when all addresses are known, in the same number of bytes. */
export interface Encoded {
  readonly size: number;
  /** `here` is the address of the instruction, `addressOf` knows every label. */
  bytes(here: number, addressOf: (label: string) => number): Uint8Array;
}

/** The parts that differ between processors. */
export interface Encoder {
  /** `e_machine` of an ELF file. */
  readonly machine: number;
  /** A constant: 0 to 2^32 - 1, or -1 to -65535. */
  constant(to: Register, value: number): Encoded;
  address(to: Register, label: string): Encoded;
  move(to: Register, from: Register): Encoded;
  /** The stack as the kernel leaves it at the start. */
  fromStackPointer(to: Register): Encoded;
  add(to: Register, other: Register): Encoded;
  subtract(to: Register, other: Register): Encoded;
  /** Adds 0 to 4095. */
  addConstant(to: Register, value: number): Encoded;
  /** Loads an unsigned number from an address that `offset` (0 to 127, a multiple of `bytes`) is added to. */
  load(bytes: 1 | 4 | 8, to: Register, base: Register, offset: number): Encoded;
  store(bytes: 1 | 4 | 8, from: Register, base: Register, offset: number): Encoded;
  jump(label: string): Encoded;
  /** Compares with a register or a constant as of {@link Encoder.constant}, below 2^31, and jumps. */
  jumpIf(condition: Condition, left: Register, right: Register | number, label: string): Encoded;
  /** The arguments are in their registers; the result is in `result`. */
  systemCall(name: SystemCall): Encoded;
}

/** An instruction that names no label. */
export function fixed(...bytes: readonly number[]): Encoded {
  return { size: bytes.length, bytes: () => Uint8Array.from(bytes) };
}

/** Combines several instructions into one. */
export function sequence(...parts: readonly Encoded[]): Encoded {
  return {
    size: parts.reduce((sum, part) => sum + part.size, 0),
    bytes: (here, addressOf) => {
      let at = here;
      const encoded = parts.map((part) => {
        const bytes = part.bytes(at, addressOf);
        at += part.size;
        return bytes;
      });
      return Buffer.concat(encoded);
    },
  };
}
