/**
 * An open network namespace. Its descriptor keeps the namespace alive; the opener disposes it.
 * The fake kernel returns objects of this type too, whose descriptor is -1.
 */
export interface NetNs extends Disposable {
  /** A descriptor of the namespace file; -1 in the fake kernel. */
  readonly fd: number;
  /** The path at which the namespace was opened, if it has one. */
  readonly path?: string;
  /** The inode number of the namespace file: the same for every handle of one namespace. */
  readonly inode: bigint;
}

/** Identifies a namespace: by its name in `ip netns`, by path, by process, or as the namespace of this process. */
export type NetNsRef = { readonly name: string } | { readonly path: string } | { readonly pid: number } | "own";

/** The folder of the named namespaces of `ip netns` (iproute2, ip/ipnetns.c NETNS_RUN_DIR). */
export const NETNS_DIR = "/run/netns";

/** True when both handles are of one namespace. */
export function sameNetNs(a: NetNs, b: NetNs): boolean {
  return a.inode === b.inode;
}
