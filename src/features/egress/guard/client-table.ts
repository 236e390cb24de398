import type { NetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { CLIENT_GUARD_TABLE, type ClientGuard, planClientGuard } from "./client-guard.ts";
import { type GuardPorts, GuardTable } from "./table.ts";

/** The table of a client in one namespace. */
export interface ClientGuardPort {
  /** Brings the table to what the client wants, and returns the number of changes. Rejects with `NftError` and `KernelError`. */
  sync(guard: ClientGuard): Promise<number>;
  /** Removes the table, and returns 1 if there was one. Throws as {@link ClientGuardPort.sync}. */
  remove(): number;
}

/** Opens the table of a client in its network namespace. Throws `NftError` and `KernelError`. Whoever opens it disposes of it. */
export function openClientGuard(netns: NetNs): ClientGuardPort & Disposable {
  const nft = openNft(netns);
  const elements = openNftElements(netns);
  return {
    ...clientGuardPort({ nft, elements }),
    [Symbol.dispose]: () => {
      elements[Symbol.dispose]();
      nft[Symbol.dispose]();
    },
  };
}

function clientGuardPort(ports: GuardPorts): ClientGuardPort {
  const table = new GuardTable(ports, CLIENT_GUARD_TABLE);
  return {
    sync: (guard) => table.sync(planClientGuard(guard)),
    remove: () => {
      if (!table.exists) return 0;
      table.remove();
      return 1;
    },
  };
}
