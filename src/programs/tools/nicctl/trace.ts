import { systemClock } from "#base/clock";
import { printable } from "#base/text";
import { tracePod, traceText } from "#features/nic-report";
import { type Event, isKubeError, type KubeApi, resources } from "#kube/client";
import { openClient } from "../../shared/daemon/index.ts";
import { nicAuditRules } from "../../shared/nic-control/index.ts";
import { EXIT } from "../../shared/program/index.ts";
import type { NicctlValues } from "./flags.ts";
import { parsePodRef, readNamespaces, readPod } from "./pod.ts";

/** `nicctl trace`: the story of a pod's NICs. Rejects with `KubeError` and `NicctlError`. */
export async function trace(
  [word = ""]: readonly string[],
  { values, output, signal }: { readonly values: NicctlValues; readonly output: string; readonly signal: AbortSignal },
): Promise<number> {
  await using api = await openClient("nicctl", values, { clock: systemClock });
  const ref = parsePodRef(word, values.namespace);
  const [{ pod, claim }, events, namespaces] = await Promise.all([
    readPod(api, ref, { signal }),
    readEvents(api, ref.namespace, { signal }),
    readNamespaces(api, { signal }),
  ]);
  const story = tracePod({
    pod,
    claim,
    wish: nicAuditRules(namespaces).wishOf(pod),
    events: (events.found ?? []).filter(({ regarding }) => regarding?.uid === pod.metadata.uid),
  });
  if (events.why !== undefined) process.stderr.write(`nicctl trace: without events: ${printable(events.why)}\n`);
  process.stdout.write(output === "json" ? `${JSON.stringify(story)}\n` : traceText(story));
  return EXIT.ok;
}

/** Reads the events of a pod. A caller who may not list events gets none. */
async function readEvents(
  api: KubeApi,
  namespace: string,
  options: { readonly signal: AbortSignal },
): Promise<{ readonly found?: readonly Event[]; readonly why?: string }> {
  try {
    return { found: (await api.listAll(resources.events, { ...options, namespace })).items };
  } catch (error) {
    if (!isKubeError(error, "forbidden")) throw error;
    return { why: error.message };
  }
}
