/**
 * The launcher that is installed as the CNI executable `coil`: a static ELF file of less than three kilobytes that passes a runtime's call on to
 * coild (docs/design/cni-executable.md). Its process lives for a fraction of a millisecond besides coild's part; a JavaScript runtime
 * cannot start that fast.
 *
 *     writeFileSync("dist/cni/coil", buildLauncher(x64, "/run/coild.sock.call1"))
 */
import { CALL, encodeHead } from "../../src/wire/cni-handover/index.ts";
import { arm64 } from "./arm64.ts";
import type { Encoder } from "./machine.ts";
import { type LauncherKind, MEMORY, MEMORY_BYTES, program, textsOf } from "./program.ts";
import { x64 } from "./x64.ts";

/** The processors by their names in Node. */
export const ENCODERS: Readonly<Record<"x64" | "arm64", Encoder>> = { x64, arm64 };

/** include/uapi/linux/elf.h, 64-bit. */
const [HEADER_BYTES, SEGMENT_BYTES, SEGMENTS] = [64, 56, 3];
const [PT_LOAD, PT_GNU_STACK] = [1, 0x6474e551];
const [EXECUTABLE, WRITABLE, READABLE] = [1, 2, 4];
/** It is a multiple of the page size of every processor. */
const ALIGNMENT = 0x10000;
const CODE_BASE = 0x400000;
const DATA_BASE = 0x600000;

/** The launcher's file, the same for the same arguments. Throws `HandoverError` for a path that no socket can have. */
export function buildLauncher(encoder: Encoder, socket: string): Uint8Array {
  return build(encoder, { kind: "hand-over", head: encodeHead(socket) });
}

/** The file of `vpc-neutron` and `vpc-alcor`: it runs the standalone executable beside it without the variables of its runtime. */
export function buildCleaner(encoder: Encoder): Uint8Array {
  return build(encoder, { kind: "clean", head: new Uint8Array(CALL.body) });
}

/** `head` is the end of the file, and the beginning of the memory. */
function build(
  encoder: Encoder,
  { kind, head }: { readonly kind: LauncherKind; readonly head: Uint8Array },
): Uint8Array {
  const addresses = new Map<string, number>();
  const lines = program(encoder, kind);
  const codeAt = HEADER_BYTES + SEGMENTS * SEGMENT_BYTES;
  let at = codeAt;
  for (const line of lines) {
    if ("label" in line) addresses.set(line.label, CODE_BASE + at);
    else at += line.size;
  }
  const texts: Uint8Array[] = [];
  for (const [label, text] of Object.entries(textsOf(kind))) {
    // Numbers in them are aligned; nothing may come between a text and the label of its end.
    const gap = text.length === 0 ? 0 : -at & 7;
    at += gap;
    addresses.set(label, CODE_BASE + at);
    texts.push(new Uint8Array(gap), text);
    at += text.length;
  }
  texts.push(new Uint8Array(-at & 15));
  const headAt = at + (-at & 15);
  for (const [label, offset] of Object.entries(MEMORY)) addresses.set(label, DATA_BASE + headAt + offset);

  const addressOf = (label: string): number => {
    const address = addresses.get(label);
    if (address === undefined) throw new Error(`the launcher has no place ${label}`);
    return address;
  };
  let here = CODE_BASE + codeAt;
  const code = lines.flatMap((line) => {
    if ("label" in line) return [];
    const bytes = line.bytes(here, addressOf);
    if (bytes.length !== line.size) throw new Error(`an instruction has ${bytes.length} bytes, not ${line.size}`);
    here += line.size;
    return [bytes];
  });
  return Buffer.concat([
    elfHeader(encoder.machine, CODE_BASE + codeAt),
    segment(PT_LOAD, READABLE | EXECUTABLE, { offset: 0, address: CODE_BASE, inFile: headAt, inMemory: headAt }),
    segment(PT_LOAD, READABLE | WRITABLE, {
      offset: headAt,
      address: DATA_BASE + headAt,
      inFile: head.length,
      inMemory: MEMORY_BYTES,
    }),
    segment(PT_GNU_STACK, READABLE | WRITABLE, { offset: 0, address: 0, inFile: 0, inMemory: 0 }),
    ...code,
    ...texts,
    head,
  ]);
}

function elfHeader(machine: number, entry: number): Uint8Array {
  const bytes = Buffer.alloc(HEADER_BYTES);
  // The magic; 64 bits, little-endian, version 1.
  bytes.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  bytes.writeUInt16LE(2, 16); // executable, at fixed addresses
  bytes.writeUInt16LE(machine, 18);
  bytes.writeUInt32LE(1, 20);
  bytes.writeBigUInt64LE(BigInt(entry), 24);
  bytes.writeBigUInt64LE(BigInt(HEADER_BYTES), 32);
  bytes.writeUInt16LE(HEADER_BYTES, 52);
  bytes.writeUInt16LE(SEGMENT_BYTES, 54);
  bytes.writeUInt16LE(SEGMENTS, 56);
  return bytes;
}

function segment(
  type: number,
  flags: number,
  at: { readonly offset: number; readonly address: number; readonly inFile: number; readonly inMemory: number },
): Uint8Array {
  const bytes = Buffer.alloc(SEGMENT_BYTES);
  bytes.writeUInt32LE(type, 0);
  bytes.writeUInt32LE(flags, 4);
  const words = [at.offset, at.address, at.address, at.inFile, at.inMemory, type === PT_LOAD ? ALIGNMENT : 16];
  for (const [index, word] of words.entries()) bytes.writeBigUInt64LE(BigInt(word), 8 + index * 8);
  return bytes;
}
