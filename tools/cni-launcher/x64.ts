/** Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; arch/x86/entry/syscalls/syscall_64.tbl. */
import {
  type Condition,
  type Encoded,
  type Encoder,
  fixed,
  type Register,
  type SystemCall,
  sequence,
} from "./machine.ts";

const RSP = 4;
const REGISTERS: Readonly<Record<Register, number>> = {
  stack: 3, // rbx
  environment: 5, // rbp
  end: 12,
  descriptor: 13,
  name: 14,
  at: 15,
  argument0: 7, // rdi
  argument1: 6, // rsi
  argument2: 2, // rdx
  argument3: 10,
  argument4: 8,
  argument5: 9,
  result: 0, // rax
  scratch: 1, // rcx
};

const SYSTEM_CALLS: Readonly<Record<SystemCall, number>> = {
  read: 0,
  write: 1,
  close: 3,
  lseek: 8,
  socket: 41,
  connect: 42,
  sendto: 44,
  setsockopt: 54,
  execve: 59,
  rt_sigaction: 13,
  fcntl: 72,
  exit_group: 231,
  readlinkat: 267,
  ppoll: 271,
  dup3: 292,
  memfd_create: 319,
};

/** The second byte of a long conditional jump. */
const JUMPS: Readonly<Record<Condition, number>> = {
  equal: 0x84,
  "not-equal": 0x85,
  below: 0x82,
  less: 0x8c,
  "less-or-equal": 0x8e,
};

const WIDE = 0x48;

const le32 = (value: number): number[] => [value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >> 24) & 255];

/** Two registers: `field` is in the middle of ModRM, `other` is its last part. */
function registers(opcode: number, field: number, other: number): Encoded {
  return fixed(WIDE | ((field >> 3) << 2) | (other >> 3), opcode, 0xc0 | ((field & 7) << 3) | (other & 7));
}

/** A register and memory at a register and an offset of one byte. */
function memory(rex: number, opcode: readonly number[], field: number, base: number, offset: number): Encoded {
  // The number of rsp, which r12 shares, means that a SIB byte follows.
  const sib = (base & 7) === RSP ? [0x24] : [];
  const prefix = rex | ((field >> 3) << 2) | (base >> 3);
  return fixed(prefix, ...opcode, 0x40 | ((field & 7) << 3) | (base & 7), ...sib, offset);
}

/** A register and a constant of 32 bits with sign. */
function withConstant(extension: number, register: number, value: number): Encoded {
  return fixed(WIDE | (register >> 3), 0x81, 0xc0 | (extension << 3) | (register & 7), ...le32(value));
}

function setConstant(register: number, value: number): Encoded {
  if (value < 0) return fixed(WIDE | (register >> 3), 0xc7, 0xc0 | (register & 7), ...le32(value));
  return fixed(0x40 | (register >> 3), 0xb8 | (register & 7), ...le32(value));
}

/** A jump: the distance counts from the end of the instruction. */
function jump(opcode: readonly number[], label: string): Encoded {
  const size = opcode.length + 4;
  return {
    size,
    bytes: (here, addressOf) => Uint8Array.from([...opcode, ...le32(addressOf(label) - here - size)]),
  };
}

export const x64: Encoder = {
  machine: 62,
  constant: (to, value) => setConstant(REGISTERS[to], value),
  address: (to, label) => ({
    size: 6,
    bytes: (here, addressOf) => setConstant(REGISTERS[to], addressOf(label)).bytes(here, addressOf),
  }),
  move: (to, from) => registers(0x89, REGISTERS[from], REGISTERS[to]),
  fromStackPointer: (to) => registers(0x89, RSP, REGISTERS[to]),
  add: (to, other) => registers(0x01, REGISTERS[other], REGISTERS[to]),
  subtract: (to, other) => registers(0x29, REGISTERS[other], REGISTERS[to]),
  addConstant: (to, value) => withConstant(0, REGISTERS[to], value),
  load(bytes, to, base, offset) {
    const rex = bytes === 8 ? WIDE : 0x40;
    return memory(rex, bytes === 1 ? [0x0f, 0xb6] : [0x8b], REGISTERS[to], REGISTERS[base], offset);
  },
  store: (bytes, from, base, offset) =>
    memory(bytes === 8 ? WIDE : 0x40, [bytes === 1 ? 0x88 : 0x89], REGISTERS[from], REGISTERS[base], offset),
  jump: (label) => jump([0xe9], label),
  jumpIf: (condition, left, right, label) =>
    sequence(
      typeof right === "number"
        ? withConstant(7, REGISTERS[left], right)
        : registers(0x39, REGISTERS[right], REGISTERS[left]),
      jump([0x0f, JUMPS[condition]], label),
    ),
  systemCall: (name) => sequence(setConstant(REGISTERS.result, SYSTEM_CALLS[name]), fixed(0x0f, 0x05)),
};
