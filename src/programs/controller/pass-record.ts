import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import type { Clock } from "#base/clock";
import { stringFlag } from "#base/config";
import type { Logger } from "#base/log";
import type { KubeApi, KubeObject, ResourceType } from "#kube/client";
import { EventRecorder, regarding } from "#kube/events";
import type { Cached, StoreReader } from "#kube/informer";
import type { ControllerOptions } from "#kube/reconciler";
import { type Aside, describeAside, PassRecord } from "#kube/suspects";

/** `--record-dir`, of each controller program. */
export const recordFlag = {
  recordDir: stringFlag(
    "record-dir",
    "",
    "folder that a restart of the program keeps, such as an emptyDir: an object whose reconciliation ends the program is set aside then; default: none, and such an object ends it each time",
    "PATH",
  ),
};

/** Random for each boot of the machine (proc_sys_kernel(5)). */
const BOOT_ID = "/proc/sys/kernel/random/boot_id";

/** The informer whose objects are named by a controller's keys. */
export interface NamedObjects {
  readonly type: ResourceType<KubeObject>;
  readonly store: Pick<StoreReader<Cached>, "getByKey">;
}

/** The options of a `Controller` by which its objects are set aside. */
export type AsideOptions = Pick<ControllerOptions, "passes" | "versionOf" | "onAside">;

/** The record of `--record-dir`, with the event and the line of the log for an object that is set aside. */
export interface PassRecording {
  readonly passes: PassRecord;
  /** Options of a controller. `objects`: see {@link NamedObjects}; without them its keys name no object that could change or have an event. */
  readonly optionsFor: (objects: NamedObjects | undefined, log: Logger) => AsideOptions;
  /** Writes the events, until the signal aborts. */
  readonly run: (signal: AbortSignal) => Promise<void>;
}

/** Opens the record. `undefined` without a folder: nothing is recorded. */
export function recordPasses(
  { program, folder }: { readonly program: string; readonly folder: string },
  { api, log, clock }: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock },
): PassRecording | undefined {
  if (folder === "") return undefined;
  const boot = readFileSync(BOOT_ID, "utf8").trim();
  const passes = new PassRecord({ folder, boot, log, clock });
  const events = new EventRecorder(api, {
    controller: program,
    instance: hostname(),
    onLoss: ({ reason }, error) => log.warn("an Event could not be written to the API server", { reason, error }),
    clock,
  });
  const onAside = (key: string, aside: Aside, objects: NamedObjects | undefined, of: Logger): void => {
    const note = describeAside(aside);
    of.error("object set aside", { key, note });
    const object = objects?.store.getByKey(key);
    if (objects === undefined || object === undefined) return;
    events.record({ regarding: regarding(objects.type, object), type: "Warning", reason: "SetAside", note });
  };
  return {
    passes,
    optionsFor: (objects, of) => ({
      passes,
      versionOf: (key) => objects?.store.getByKey(key)?.metadata.resourceVersion,
      onAside: (key, aside) => onAside(key, aside, objects, of),
    }),
    run: (signal) => events.run({ signal }),
  };
}
