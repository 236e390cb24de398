import { lstat } from "node:fs/promises";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";

/** Where an operator puts a file, of any kind and content, to take new programs out of the proxy (docs/spec/uplink-proxy.md#10.4). */
export const OFF_SWITCH = "/run/kube/mgmtproxy-disable";

/** Whether new programs are put behind the proxy. A file that cannot be looked at is no file, and a warning. */
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
      log.warn("cannot look at the off-switch; programs go through the proxy", { path, error: describeError(error) });
    }
    return { isEnabled: true };
  }
}
