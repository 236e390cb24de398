import type { Clock } from "#base/clock";
import { FileError, readBounded, watchFiles } from "#base/file";
import type { Logger } from "#base/log";
import { type ConfigSource, digestOf } from "../../shared/service-proxy-config/index.ts";
import { ServiceProxyError } from "./errors.ts";

/**
 * Watches the file until the signal aborts. Rejects with {@link ServiceProxyError} `config-changed` when its content has changed (spec
 * service-proxy 2.10): the file may be written in place or replaced, or a symbolic link may change, as in a
 * ConfigMap volume. A new time of the file with the same content is not a change. If the file cannot be read, this is logged once, and the
 * watch continues.
 */
export async function watchConfig(
  source: ConfigSource,
  { signal, log, clock }: { readonly signal: AbortSignal; readonly log: Logger; readonly clock: Clock },
): Promise<void> {
  const { path, digest } = source;
  let isGone = false;
  const look = (): void => {
    let text: string;
    try {
      text = readBounded(path);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      if (!isGone)
        log.warn("the configuration file cannot be read; the last configuration stays in force", {
          error: error.message,
        });
      isGone = true;
      return;
    }
    isGone = false;
    if (digestOf(text) === digest) return;
    throw new ServiceProxyError(
      "config-changed",
      `the configuration file ${path} has changed; the program ends, so that the next start reads it`,
    );
  };
  // The first check compares the file with the content that was read at the start of the program.
  await watchFiles([path], look, { signal, clock, since: "" });
}
