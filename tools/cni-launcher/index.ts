/**
 * The launchers of the CNI executables: `coil`, which hands a runtime's call over to coild, and `vpc-neutron` and `vpc-alcor`, which run their standalone
 * executable without the variables of its runtime (docs/design/cni-executable.md). They are C without a C library, compiled by Debian's compiler: a
 * JavaScript runtime cannot start in the fraction of a millisecond that they take.
 *
 *     writeFileSync("dist/cni/coil", launcherFor(compileLauncher("coil", "x64"), "/run/coild.sock.call1"))
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** The processors by their names in Node. */
export type Processor = "x64" | "arm64";

/** The compiler for a processor: the machine's own, or that of Debian's package `gcc-aarch64-linux-gnu` or `gcc-x86-64-linux-gnu`. */
export function compilerFor(processor: Processor): string {
  if (processor === process.arch) return "gcc";
  return processor === "x64" ? "x86_64-linux-gnu-gcc" : "aarch64-linux-gnu-gcc";
}

const FLAGS = [
  ...["-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror"],
  // There is no library: the compiler must neither call one nor add what one needs.
  ...["-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-fno-stack-protector", "-nostdlib"],
  ...["-fno-asynchronous-unwind-tables", "-fno-ident", "-static", "-fno-pie", "-no-pie"],
  // Two segments: code with constants, and data. 64 KiB is a multiple of the page size of every processor.
  "-Wl,--build-id=none,--strip-all,-z,noseparate-code,-z,norelro,-z,max-page-size=65536",
];

/** include/uapi/linux/elf.h, 64-bit. */
const HEADER = { segmentsAt: 32, sectionsAt: 40, segmentBytes: 54, segments: 56, sectionBytes: 58, sections: 60 };
const SEGMENT = { offset: 8, inFile: 32 };

/** The file of a launcher, the same for the same compiler. That of `coil` ends with the head of a call without a path. Throws if there is no compiler. */
export function compileLauncher(name: "coil" | "vpc", processor: Processor): Uint8Array {
  const work = mkdtempSync(join(tmpdir(), "isthmus-launcher-"));
  try {
    const output = join(work, name);
    execFileSync(compilerFor(processor), [...FLAGS, "-o", output, join(import.meta.dirname, `${name}.c`)]);
    return withoutSections(readFileSync(output));
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** The file up to the end of its last segment: the kernel reads no more, and an installer finds the path of the socket at the end. */
function withoutSections(file: Buffer): Uint8Array {
  const at = Number(file.readBigUInt64LE(HEADER.segmentsAt));
  const bytes = file.readUInt16LE(HEADER.segmentBytes);
  const ends = Array.from({ length: file.readUInt16LE(HEADER.segments) }, (_, index) => {
    const segment = file.subarray(at + index * bytes);
    const inFile = Number(segment.readBigUInt64LE(SEGMENT.inFile));
    return inFile === 0 ? 0 : Number(segment.readBigUInt64LE(SEGMENT.offset)) + inFile;
  });
  file.fill(0, HEADER.sectionsAt, HEADER.sectionsAt + 8).fill(0, HEADER.sectionBytes, HEADER.sections + 4);
  return file.subarray(0, Math.max(...ends));
}
