/** Source: Arm Architecture Reference Manual for A-profile, C6; include/uapi/asm-generic/unistd.h. */
import { type Condition, type Encoded, type Encoder, type Register, type SystemCall, sequence } from "./machine.ts";

const REGISTERS: Readonly<Record<Register, number>> = {
  stack: 19,
  environment: 20,
  end: 21,
  descriptor: 22,
  name: 23,
  at: 24,
  argument0: 0,
  argument1: 1,
  argument2: 2,
  argument3: 3,
  argument4: 4,
  argument5: 5,
  result: 9,
  scratch: 10,
};
/** The register of a system call's number. */
const X8 = 8;
/** The register of a constant in a comparison. */
const X11 = 11;
/** Zero, and the stack pointer: the instruction decides which of the two it is. */
const X31 = 31;

const SYSTEM_CALLS: Readonly<Record<SystemCall, number>> = {
  dup3: 24,
  close: 57,
  lseek: 62,
  read: 63,
  write: 64,
  ppoll: 73,
  readlinkat: 78,
  rt_sigaction: 134,
  fcntl: 25,
  exit_group: 94,
  socket: 198,
  connect: 203,
  sendto: 206,
  setsockopt: 208,
  execve: 221,
  memfd_create: 279,
};

const CONDITIONS: Readonly<Record<Condition, number>> = {
  equal: 0,
  "not-equal": 1,
  below: 3,
  less: 11,
  "less-or-equal": 13,
};

/** One word, which may depend on its address. */
function word(value: (here: number, addressOf: (label: string) => number) => number): Encoded {
  return {
    size: 4,
    bytes: (here, addressOf) => {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32LE(value(here, addressOf) >>> 0);
      return bytes;
    },
  };
}

const plain = (value: number): Encoded => word(() => value);

/** Three registers. */
const three = (opcode: number, to: number, left: number, right: number): Encoded =>
  plain(opcode | (right << 16) | (left << 5) | to);

/** MOVZ and MOVK; MOVN for a negative value. */
function setConstant(register: number, value: number): Encoded {
  if (value < 0) return plain(0x92800000 | ((~value & 0xffff) << 5) | register);
  return sequence(
    plain(0xd2800000 | ((value & 0xffff) << 5) | register),
    plain(0xf2a00000 | ((value >>> 16) << 5) | register),
  );
}

/** The offset of a load or store is in units of its size. */
const memory = (opcode: number, bytes: number, register: number, base: number, offset: number): Encoded =>
  plain(opcode | ((offset / bytes) << 10) | (base << 5) | register);

const LOADS = { 1: 0x39400000, 4: 0xb9400000, 8: 0xf9400000 } as const;
const STORES = { 1: 0x39000000, 4: 0xb9000000, 8: 0xf9000000 } as const;

export const arm64: Encoder = {
  machine: 183,
  constant: (to, value) => setConstant(REGISTERS[to], value),
  address: (to, label) => ({
    size: 8,
    bytes: (here, addressOf) => setConstant(REGISTERS[to], addressOf(label)).bytes(here, addressOf),
  }),
  move: (to, from) => three(0xaa000000, REGISTERS[to], X31, REGISTERS[from]),
  fromStackPointer: (to) => plain(0x91000000 | (X31 << 5) | REGISTERS[to]),
  add: (to, other) => three(0x8b000000, REGISTERS[to], REGISTERS[to], REGISTERS[other]),
  subtract: (to, other) => three(0xcb000000, REGISTERS[to], REGISTERS[to], REGISTERS[other]),
  addConstant: (to, value) => plain(0x91000000 | (value << 10) | (REGISTERS[to] << 5) | REGISTERS[to]),
  load: (bytes, to, base, offset) => memory(LOADS[bytes], bytes, REGISTERS[to], REGISTERS[base], offset),
  store: (bytes, from, base, offset) => memory(STORES[bytes], bytes, REGISTERS[from], REGISTERS[base], offset),
  jump: (label) => word((here, addressOf) => 0x14000000 | (((addressOf(label) - here) / 4) & 0x03ffffff)),
  jumpIf(condition, left, right, label) {
    const other = typeof right === "number" ? X11 : REGISTERS[right];
    const compare = three(0xeb000000, X31, REGISTERS[left], other);
    const jump = word(
      (here, addressOf) => 0x54000000 | ((((addressOf(label) - here) / 4) & 0x7ffff) << 5) | CONDITIONS[condition],
    );
    return typeof right === "number" ? sequence(setConstant(X11, right), compare, jump) : sequence(compare, jump);
  },
  systemCall: (name) =>
    sequence(
      setConstant(X8, SYSTEM_CALLS[name]),
      plain(0xd4000001),
      three(0xaa000000, REGISTERS.result, X31, REGISTERS.argument0),
    ),
};
