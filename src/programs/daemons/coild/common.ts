import type { AbortOptions } from "#base/async";
import { systemClock } from "#base/clock";
import { filterOpeners, loadDriverModules, PRIVATE_RANGES } from "#features/egress";
import type { SourceGuard } from "#features/source-guard";
import type { Kernel, NetNs } from "#kernel/net";
import { type Namespace, resources } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import type { Informer } from "#kube/informer";
import { type DaemonKit, openRecording } from "../../shared/daemon-kit/index.ts";
import type { PassRecording } from "../../shared/pass-record/index.ts";
import type { CoildValues } from "./flags.ts";
import type { coildMetrics } from "./metrics.ts";
import { type KnownNamespace, namespaceInformer } from "./namespaces.ts";
import { clientsOpener, type OpenClients } from "./open-clients.ts";
import { openGuard } from "./open-guard.ts";

/** An ADD waits this long for the permission to use an Egress, milliseconds: less than executables wait for an answer. */
const PERMISSION_MS = 40_000;
/** Within this time each NAT client is compared with its pod, milliseconds. */
const CLIENT_RESYNC_MS = 300_000;

/** The kit of `coild`; its environment is the name of the node. */
export type CoildKit = DaemonKit<CoildValues, string, ReturnType<typeof coildMetrics>>;

/** The kernel, and the network namespace of the node. */
export interface OpenedKernel {
  readonly kernel: Kernel;
  readonly own: NetNs;
}

/** State that `coild` has with address management and behind another plugin. */
export interface Common extends OpenedKernel {
  readonly guard: SourceGuard | undefined;
  readonly namespaces: Informer<Namespace, KnownNamespace>;
  readonly openClients: OpenClients;
  readonly events: EventRecorder;
  readonly recording: PassRecording | undefined;
}

/** Loads the modules of the tunnel driver, and opens the source guard. */
export async function openCommon(kit: CoildKit, { kernel, own }: OpenedKernel): Promise<Common> {
  const { values, environment: nodeName, api, health, metrics, log, signal, use } = kit;
  const { events, recording } = openRecording(kit, { controller: "coild", instance: nodeName });
  const { tunnelDriver: asked } = values;
  const loadModules = (at: AbortOptions): Promise<void> => loadDriverModules(asked, { ...at, kernel, log });
  if (values.enableEgress) await loadModules({ signal });
  const steps = recording?.stepsFor(resources.namespaces);
  const namespaces = namespaceInformer(api, { health, steps, clock: systemClock });
  const filters = filterOpeners(values.backend);
  const openClients = clientsOpener(
    { kernel, api, namespaces, events, health, metrics, filters, loadModules, recording, log },
    clientOptions(kit),
  );
  const { guard } = use(openGuard({ netns: own, health, log }, values));
  return { kernel, own, guard, namespaces, openClients, events, recording };
}

/** Settings of the NAT clients; `undefined` with `--enable-egress=false`. */
function clientOptions({ values, environment: nodeName }: Pick<CoildKit, "values" | "environment">) {
  if (!values.enableEgress) return undefined;
  const { inClusterCidr, egressPort: port, tunnelDriver: asked, enableOriginatingOnly: originatingOnly } = values;
  const inCluster = inClusterCidr.length > 0 ? inClusterCidr : PRIVATE_RANGES;
  const times = { permissionMs: PERMISSION_MS, resyncMs: CLIENT_RESYNC_MS };
  return { nodeName, asked, port, inCluster, originatingOnly, ...times };
}
