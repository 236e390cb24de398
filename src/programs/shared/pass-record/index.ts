/**
 * `--record-dir` of a program: objects that end it, or hold it until its liveness probe fails, are set aside with an event, a line of the log and a metric.
 *
 * Owns: the flag, the metric, the reports. Does not know: which objects there are, what is done with them.
 *
 * ```ts
 * const recording = recordPasses({ folder: values.recordDir }, { events, log, clock });
 * const pods = createInformer(api, resources.pods, { steps: recording?.stepsFor(resources.pods), clock });
 * const end = endRecording(recording, signal);
 * ```
 */
export { asideMetrics } from "./metrics.ts";
export {
  type NamedObjects,
  type PassRecording,
  type RecordedWork,
  recordFlag,
  recordPasses,
} from "./pass-record.ts";
export { recordAttachments } from "./record-attachments.ts";
export { recordCalls } from "./record-calls.ts";
