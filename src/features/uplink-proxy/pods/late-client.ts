import { Backoff, retry } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { type KubeApi, KubeConfigError } from "#kube/client";

/** Interval of checks for a kubeconfig, in milliseconds. */
const RETRY_MS = 15_000;

/**
 * Calls `work` with a client of the API server as soon as there is a kubeconfig: on a node that boots, the proxy starts before the cluster,
 * and must serve the cluster's start (docs/spec/uplink-proxy.md#1). Runs until the signal aborts or `work` ends. Rejects as `work` does.
 */
export async function withLateClient<T extends KubeApi & AsyncDisposable>(
  open: () => Promise<T>,
  work: (api: T) => Promise<void>,
  deps: { readonly log: Logger; readonly clock: Clock },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { log, clock } = deps;
  let logged = "";
  const lend = async (): Promise<void> => {
    await using api = await open();
    await work(api);
  };
  await retry(lend, {
    signal,
    clock,
    backoff: new Backoff({ initialMs: RETRY_MS, maxMs: RETRY_MS, jitter: 0 }),
    isPassing: (error) => error instanceof KubeConfigError,
    onFailure: (error) => {
      const text = describeError(error);
      if (text !== logged) log.warn("cannot read a kubeconfig for the API server yet; trying again", { error: text });
      logged = text;
    },
  });
}
