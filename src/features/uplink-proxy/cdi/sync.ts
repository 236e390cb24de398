import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { Settings } from "#base/uplink-model";
import { isKubeError, type KubeApi, KubeError, type KubeObject, resources, resourceType } from "#kube/client";
import { CA_CONFIG_MAP, cdiPatch, type ImportProxy, isCurrent } from "./import-proxy.ts";
import { type CdiAccess, type CdiWanted, cdiWanted } from "./wanted.ts";

/** The fields of the CDI object that this code uses. */
interface Cdi extends KubeObject {
  readonly spec?: unknown;
}

/** `cdis.cdi.kubevirt.io/v1beta1`, cluster-wide. */
export const cdiResource = resourceType<Cdi>({
  group: "cdi.kubevirt.io",
  version: "v1beta1",
  kind: "CDI",
  plural: "cdis",
  namespaced: false,
});

/** Name of the only CDI object. */
const NAME = "cdi";
const FIELD_MANAGER = "uplink-proxy";

type Api = Pick<KubeApi, "get" | "patch">;

/**
 * Sets the proxy in the CDI object; returns the number of objects written. Reads first, and writes nothing if the values
 * match; an object that cannot be read is written all the same. Rejects with `KubeError`. The token is never logged.
 */
export async function syncCdi(
  api: Api,
  wanted: CdiWanted,
  options: AbortOptions & { readonly log: Logger },
): Promise<number> {
  const published = wanted.caPem === undefined ? 0 : await publishCa(api, wanted.caPem, options);
  if (await says(api, wanted.proxy, options)) return published;
  await api.patch(
    cdiResource,
    { name: NAME },
    { type: "merge", body: cdiPatch(wanted.proxy) },
    { ...options, fieldManager: FIELD_MANAGER },
  );
  options.log.info("mgmtproxy: CDI importProxy set", {
    noProxy: wanted.proxy.noProxy,
    ca: wanted.proxy.trustedCAProxy ?? "",
  });
  return published + 1;
}

async function says(api: Api, wanted: ImportProxy, options: AbortOptions): Promise<boolean> {
  try {
    return isCurrent(await api.get(cdiResource, { name: NAME }, options), wanted);
  } catch (error) {
    options.signal?.throwIfAborted();
    if (error instanceof KubeError) return false;
    throw error;
  }
}

async function publishCa(api: Api, caPem: string, options: AbortOptions): Promise<number> {
  const ref = { namespace: CA_CONFIG_MAP.namespace, name: CA_CONFIG_MAP.name };
  try {
    const { data } = await api.get(resources.configMaps, ref, options);
    if (data?.[CA_CONFIG_MAP.key] === caPem) return 0;
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
  const object = { metadata: ref, data: { [CA_CONFIG_MAP.key]: caPem } };
  await api.patch(
    resources.configMaps,
    ref,
    { type: "apply", fieldManager: FIELD_MANAGER, force: true, body: object },
    options,
  );
  return 1;
}

/**
 * Syncs every `tickMs` until the signal aborts; a failure is a warning, once for each text, and is tried again at the next tick
 * (docs/spec/uplink-proxy.md#12). Settings and access are read each time, because they change; while nothing is wanted, nothing is written.
 */
export async function runCdiSync(
  deps: {
    readonly api: Api;
    readonly log: Logger;
    readonly clock: Clock;
    readonly settings: () => Settings;
    readonly access: CdiAccess;
  },
  { signal, tickMs = 15_000 }: { readonly signal: AbortSignal; readonly tickMs?: number },
): Promise<void> {
  const { api, log, clock, access } = deps;
  let lastFailure = "";
  const sync = async (): Promise<void> => {
    const wanted = cdiWanted(deps.settings(), access);
    if (wanted !== undefined) {
      await syncCdi(api, wanted, { log, signal });
      access.published(wanted.caPem !== undefined);
    }
    lastFailure = "";
  };
  const onFailure = (error: Error): void => {
    const text = describeError(error);
    if (text !== lastFailure) log.warn("mgmtproxy: cannot set CDI importProxy; trying again", { error: text });
    lastFailure = text;
  };
  await repeat(sync, { signal, clock, everyMs: tickMs, onFailure });
}
