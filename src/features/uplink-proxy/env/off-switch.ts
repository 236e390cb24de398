import { lstat } from "node:fs/promises";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";

/** The off-switch: while this file exists, of any kind and content, new programs get no variables (docs/spec/uplink-proxy.md#10.4). */
export const OFF_SWITCH = "/run/kube/mgmtproxy-disable";

/** Resolves with true if new programs get the variables of the proxy. A file that cannot be checked counts as missing, with a warning. */
export async function readOffSwitch(
  path: string,
  { log }: { readonly log: Pick<Logger, "warn"> },
): Promise<{ readonly isEnabled: boolean }> {
  try {
    await lstat(path);
    return { isEnabled: false };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") {
      log.warn("cannot check whether the off-switch exists; programs use the proxy", {
        path,
        error: describeError(error),
      });
    }
    return { isEnabled: true };
  }
}
