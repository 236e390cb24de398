import { systemClock } from "#base/clock";
import { type Logger, Repeats } from "#base/log";
import type { Registry } from "#base/metrics";
import type { KubeApi } from "#kube/client";
import { EventRecorder } from "#kube/events";
import { asideMetrics, type PassRecording, recordPasses } from "../pass-record/index.ts";

/**
 * The events of a daemon, and its record of passes with `--record-dir`. The caller runs the events. `instance` names the daemon among those of its kind. Declares the metric of
 * objects that are set aside.
 */
export function openRecording(
  daemon: {
    readonly api: KubeApi;
    readonly registry: Registry;
    readonly log: Logger;
    readonly values: { readonly recordDir: string };
    readonly signal: AbortSignal;
  },
  { controller, instance }: { readonly controller: string; readonly instance: string },
): { readonly events: EventRecorder; readonly recording: PassRecording | undefined } {
  const { api, registry, log, values, signal } = daemon;
  const repeats = new Repeats();
  const events = new EventRecorder(api, {
    controller,
    instance,
    onLoss: ({ reason }, error) => {
      // Once for each reason why.
      if (repeats.isNew("events", error))
        log.warn("an Event could not be written to the API server", { reason, error });
    },
    clock: systemClock,
  });
  const recording = recordPasses({ folder: values.recordDir, signal }, { events, log, clock: systemClock });
  asideMetrics(registry)(() => recording?.passes.aside ?? []);
  return { events, recording };
}
