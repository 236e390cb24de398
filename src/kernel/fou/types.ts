import type { IpFamily } from "#base/ip";

/** A UDP port on which the kernel unwraps packets (foo over UDP). */
export interface FouPortEntry {
  readonly family: IpFamily;
  readonly port: number;
  /** The inner protocol: 4 for IPv4 (ipip), 41 for IPv6; 0 with `gue`. */
  readonly ipProtocol: number;
  /** Generic UDP encapsulation instead of direct. Default false. */
  readonly gue?: boolean;
}

/**
 * The FOU ports of one namespace. Every method throws {@link KernelError}, `unsupported` when this kernel has no `fou`
 * module loaded.
 */
export interface FouPort {
  /** True if the kernel has FOU. No request makes the kernel load its module. */
  available(): boolean;
  list(family: IpFamily): FouPortEntry[];
  /** Throws `already-exists` or `busy` when the port is taken. */
  add(entry: FouPortEntry): void;
  /** Throws `not-found` or `invalid` when there is no such port. */
  delete(entry: Pick<FouPortEntry, "family" | "port">): void;
}
