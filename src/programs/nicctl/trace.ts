import { systemClock } from "#base/clock";
import { tracePod, traceText } from "#features/nic-report";
import { resources } from "#kube/client";
import { openClient } from "../daemon/index.ts";
import { nicAuditRules } from "../nic-controller/index.ts";
import { EXIT } from "../program/index.ts";
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
    api.listAll(resources.events, { signal, namespace: ref.namespace }),
    readNamespaces(api, { signal }),
  ]);
  const story = tracePod({
    pod,
    claim,
    wish: nicAuditRules(namespaces).wishOf(pod),
    events: events.items.filter(({ regarding }) => regarding?.uid === pod.metadata.uid),
  });
  process.stdout.write(output === "json" ? `${JSON.stringify(story)}\n` : traceText(story));
  return EXIT.ok;
}
