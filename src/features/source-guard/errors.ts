import { ExpectedError } from "#base/errors";

/**
 * - `unavailable`: this kernel refuses the guard's tables: it may lack nf_tables, `nf_tables_arp` or `nft_fib_inet`.
 * - `refused`: the kernel refused elements of a link.
 */
export type GuardErrorCode = "unavailable" | "refused";

/** The guard could not be written. The kernel has what it had before. */
export class GuardError extends ExpectedError<GuardErrorCode> {
  override readonly name = "GuardError";
}
