import type { NetNs } from "#kernel/net";
import { type Nft, openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { CLIENT_GUARD_TABLE, type ClientGuard, planClientGuard } from "./client-guard.ts";
import { GuardTable } from "./table.ts";

/** The table of a client in one namespace. */
export interface ClientGuardPort {
  /** Brings the table to what the client wants, and returns the number of changes. Rejects with `NftError` and `KernelError`. */
  sync(guard: ClientGuard): Promise<number>;
  /** Removes the table, and returns 1 if there was one. Throws as {@link ClientGuardPort.sync}. */
  remove(): number;
}

/**
 * Opens the table of a client in its network namespace. nftables itself is opened with the first change: most pods have no table. Throws `NftError` and
 * `KernelError`. Whoever opens it disposes of it.
 */
export function openClientGuard(netns: NetNs): ClientGuardPort & Disposable {
  const elements = openNftElements(netns);
  let nft: Nft | undefined;
  const table = (): GuardTable => {
    nft ??= openNft(netns);
    return new GuardTable({ nft, elements }, CLIENT_GUARD_TABLE);
  };
  return {
    sync: (guard) => table().sync(planClientGuard(guard)),
    remove: () => {
      if (elements.structure(CLIENT_GUARD_TABLE).length === 0) return 0;
      table().remove();
      return 1;
    },
    [Symbol.dispose]: () => {
      elements[Symbol.dispose]();
      nft?.[Symbol.dispose]();
    },
  };
}
