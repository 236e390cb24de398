import { ExpectedError } from "#base/errors";
import type { Settings } from "#base/uplink-model";
import { describeFlush, flushKernel, otherTables, settingsOfClaims } from "#features/uplink-routing";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import { familiesOf } from "#kernel/rule";
import type { ReadEstates } from "../../shared/estate/index.ts";

interface Kernel {
  readonly stack: NetStack;
  readonly nft: Nft;
}

/** The result of a flush. */
export interface Flushed {
  readonly changes: number;
  /** All that is left, or may be, one line each. */
  readonly left: readonly string[];
}

/**
 * Removes the kernel objects of these settings, and of all that `uplink-proxy` had since the boot by its estates. Then it looks again. Throws `KernelError` and `NftError` if
 * the kernel cannot be read; what cannot be removed is a line of `left`.
 */
export function flushAll(kernel: Kernel, settings: Settings, { sets, refused }: ReadEstates): Flushed {
  const former = sets.flatMap(({ kernel: claims }) => (claims.length === 0 ? [] : [settingsOfClaims(claims)]));
  const all = [settings, ...former];
  const failures: string[] = [];
  let changes = 0;
  for (const one of all) {
    try {
      changes += flushKernel(kernel, one);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      failures.push(error.message);
    }
  }
  const left = all.flatMap((one) => describeFlush(kernel, one));
  const routes = familiesOf(kernel.stack.rules).flatMap((family) => kernel.stack.routes.list({ family }));
  const others = otherTables(routes, all).map(
    (where) => `routes of ${where} end as those of an uplink with other settings`,
  );
  return { changes, left: [...new Set([...failures, ...refused, ...left, ...others])] };
}
