import { join } from "node:path";
import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { replaceFile } from "#base/file";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { KubeConnection, KubeCredentials } from "#kube/client";

/** The interval at which the credentials are compared with the files, in milliseconds. The plugin runs when they expire within 10 s. */
const LOOK_MS = 2000;
/** The longest pause after a plugin that has failed, in milliseconds. */
const MAX_PAUSE_MS = 30_000;
const BEARER = "Bearer ";

/** Credentials of an exec plugin, in files. Disposing ends their renewal; the files stay. */
export interface PluginCredentials extends AsyncDisposable {
  /** The fields of a kubeconfig's user that name the files. */
  readonly user: Readonly<Record<string, string>>;
}

/**
 * Writes the credentials of a connection into files of a folder, and again whenever they are renewed, for programs that cannot run its plugin: those
 * of a lab have neither the environment of its user nor a way out of their node. Rejects with `KubeConfigError` if the plugin fails the first time;
 * later failures are logged, and the plugin is run again.
 */
export async function keepPluginCredentials(
  { connection, log, clock }: { readonly connection: KubeConnection; readonly log: Logger; readonly clock: Clock },
  folder: string,
): Promise<PluginCredentials> {
  const stop = new AbortController();
  let written: KubeCredentials | undefined;
  const write = async (): Promise<Record<string, string>> => {
    const credentials = await connection.credentials({ signal: stop.signal });
    const files = filesOf(credentials, folder);
    // The connection returns the same object until they change.
    if (credentials !== written) for (const { path, text } of files) replaceFile(path, text, { mode: 0o600 });
    written = credentials;
    return Object.fromEntries(files.map(({ field, path }) => [field, path]));
  };
  const user = await write();
  const renewing = repeat(async () => void (await write()), {
    signal: stop.signal,
    everyMs: LOOK_MS,
    backoff: new Backoff({ initialMs: LOOK_MS, maxMs: MAX_PAUSE_MS }),
    clock,
    onFailure: (error) =>
      log.warn("the credentials of --kubeconfig cannot be renewed", { error: describeError(error) }),
  });
  return {
    user,
    async [Symbol.asyncDispose]() {
      stop.abort();
      await renewing;
    },
  };
}

/** Pure: the files of credentials, and the fields that name them. */
function filesOf(
  { headers, cert, key }: KubeCredentials,
  folder: string,
): readonly { readonly field: string; readonly path: string; readonly text: string }[] {
  const token = headers["authorization"]?.slice(BEARER.length);
  const texts = { tokenFile: token, "client-certificate": cert, "client-key": key };
  return Object.entries(texts).flatMap(([field, text]) =>
    text === undefined ? [] : [{ field, path: join(folder, `plugin-${field}`), text }],
  );
}
