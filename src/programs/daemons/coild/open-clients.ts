import type { AbortOptions } from "#base/async";
import { systemClock } from "#base/clock";
import type { Health } from "#base/health";
import type { Logger } from "#base/log";
import { type EgressClientOptions, EgressClients, type FilterOpeners } from "#features/egress";
import type { PodPlace } from "#features/pod-network";
import type { Kernel } from "#kernel/net";
import type { KubeApi, Namespace } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import type { Informer } from "#kube/informer";
import type { PassRecording } from "../../shared/pass-record/index.ts";
import type { coildMetrics } from "./metrics.ts";
import type { KnownNamespace } from "./namespaces.ts";

/** Makes the NAT clients of this node; `undefined` with `--enable-egress=false`. The caller runs them. */
export type OpenClients = (places: () => readonly PodPlace[]) => EgressClients | undefined;

/** {@link OpenClients} for the flags; without options there are no clients, no watches and no right is needed. */
export function clientsOpener(
  parts: {
    readonly kernel: Kernel;
    readonly api: KubeApi;
    readonly namespaces: Informer<Namespace, KnownNamespace>;
    readonly events: EventRecorder;
    readonly health: Health;
    readonly metrics: ReturnType<typeof coildMetrics>;
    readonly filters: FilterOpeners;
    readonly loadModules: (options: AbortOptions) => Promise<void>;
    readonly recording: PassRecording | undefined;
    readonly log: Logger;
  },
  options: EgressClientOptions | undefined,
): OpenClients {
  return (places) => {
    if (options === undefined) return undefined;
    const { metrics, log, ...rest } = parts;
    const clients = new EgressClients(
      { ...rest, places, onDriver: metrics.onDriver, log: log.child("egress"), clock: systemClock },
      options,
    );
    metrics.observeClients(clients);
    return clients;
  };
}
