import type { RecordedSteps } from "#features/pod-network";
import type { PassRecording } from "./pass-record.ts";

/** Makes what is done on the host's link of one pod a step of that link. Only time ends its being set aside: a link has no version, and no event. */
export function recordAttachments(recording: PassRecording | undefined): RecordedSteps | undefined {
  if (recording === undefined) return undefined;
  return (name, key, run) => {
    const done = recording.step({ name, key, version: () => "", about: () => undefined }, run);
    return "value" in done ? done : undefined;
  };
}
