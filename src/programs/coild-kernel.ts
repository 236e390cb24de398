import { Dirty } from "#base/async";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import type { NodeIpam } from "#features/ipam";
import type { PodNetwork } from "#features/pod-network";

/** How often the kernel is looked at, milliseconds: others flush tables, set links down and change aliases. */
const RESYNC_MS = 10_000;

/** Tells memory what the kernel has: see {@link NodeIpam.remember}. */
export function rememberKernel(
  { network, ipam }: { readonly network: PodNetwork; readonly ipam: NodeIpam },
  options: { readonly registerFromMain: boolean },
): ReturnType<PodNetwork["survey"]> {
  const survey = network.survey(options);
  ipam.remember(survey.attached, survey.strays);
  return survey;
}

/** Keeps memory in step with the kernel and puts back what the pods' network lacks there, until the signal aborts. */
export async function keepKernel(
  parts: {
    readonly network: PodNetwork;
    readonly ipam: NodeIpam;
    readonly health: HealthPart;
    readonly log: Logger;
  },
  options: { readonly registerFromMain: boolean; readonly signal: AbortSignal },
): Promise<void> {
  const { network, ipam, log } = parts;
  // What cannot be put back keeps no pod waiting.
  parts.health.ok();
  await reconcile({
    dirty: new Dirty(),
    health: parts.health,
    signal: options.signal,
    resyncMs: RESYNC_MS,
    sync: async () => {
      // In one turn: an ADD or DEL in between would look like a change by somebody else.
      const survey = rememberKernel(parts, options);
      const ofHost = network.initHost();
      const ofPods = network.repair(survey, (attachment) => {
        const own = ipam.assigned(attachment);
        return own && [own.ipv4, own.ipv6].filter((address) => address !== undefined);
      });
      const changes = ofHost + ofPods;
      if (changes > 0) log.warn("routes, rules or addresses had vanished and were put back", { changes });
      return changes;
    },
  });
}
