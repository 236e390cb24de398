import type { RecordedSteps } from "#features/pod-network";
import type { PassRecording } from "./pass-record.ts";

const WORK = {
  "attachment-reads": "what its pod has in it is not read",
  "attachment-repairs": "it is not made again",
} as const;

/**
 * Makes what is done on the host's link of one pod a step of that link. Only time ends its being set aside: a link has no version. The event is one of the Node, and names the
 * link: the pod is not known where its link cannot be read.
 */
export function recordAttachments(
  recording: PassRecording | undefined,
  { nodeName }: { readonly nodeName: string },
): RecordedSteps | undefined {
  if (recording === undefined) return undefined;
  const node = { apiVersion: "v1", kind: "Node", name: nodeName, uid: nodeName };
  return (name, key, run) => {
    const subject = `link ${key} of a pod, ${WORK[name]} meanwhile`;
    const done = recording.step({ name, key, version: () => "", about: () => node, subject }, run);
    return "value" in done ? done : undefined;
  };
}
