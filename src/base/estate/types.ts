import type { KernelClaim } from "./claims.ts";
import type { Section } from "./sections.ts";

/** Kernel objects with one purpose. */
export interface Holding {
  readonly claims: readonly KernelClaim[];
  /** The flags, such as `--protocol-id`, that change a field of these claims, by the name of the field. Other fields are fixed in the program's code. */
  readonly flags?: Readonly<Record<string, string>>;
  readonly what: string;
}

/** A file or folder of the program. */
export interface FileHolding {
  /** Absolute. A part such as `<name>` stands for any text. */
  readonly path: string;
  readonly what: string;
}

/** All that a program owns and serves, as data (docs/design/estate.md). */
export interface Estate {
  readonly kernel: readonly Holding[];
  readonly files: readonly FileHolding[];
  /** Folders below which every file is the program's, whatever its name is. Absolute. */
  readonly folders: readonly string[];
  /** Listeners, rights, parts of health and further tables, in the order of the reference page; `files` and `kernel` follow them. */
  readonly sections: readonly Section[];
}

/** Kernel claims and paths of one configuration of a program, in one network namespace, as they are written to the disk. */
export interface ClaimSet {
  /** The boot id of the machine (/proc/sys/kernel/random/boot_id). */
  readonly boot: string;
  /** The inode number of the network namespace, in decimal digits. */
  readonly netns: string;
  readonly kernel: readonly KernelClaim[];
  readonly files: readonly string[];
}

/** An empty estate, to be completed. */
export const NO_ESTATE: Estate = { kernel: [], files: [], folders: [], sections: [] };
