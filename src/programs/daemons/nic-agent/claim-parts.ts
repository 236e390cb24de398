import { systemClock } from "#base/clock";
import { reconcile } from "#base/reconcile";
import { applyReport, plannedReport } from "#features/nic-agent";
import { shownNics } from "#features/nic-cni";
import { createInformer, type Informer } from "#kube/informer";
import { CLAIM_NODE_LABEL, type NicClaim, nicResources, nodeLabelValue } from "#kube/nic";
import { informerHealth } from "../../shared/daemon/index.ts";
import type { Part } from "../../shared/daemon-kit/index.ts";
import type { Agent, NicAgentKit } from "./agent.ts";
import { reportEach } from "./report-each.ts";
import { RESYNC_MS } from "./resync.ts";

type Sync = Parameters<typeof reconcile>[0]["sync"];

/** The claims of this node follow the API: the watch, the status of each, and NICs that are plugged and unplugged while the pod runs. */
export function claimParts(kit: NicAgentKit, agent: Agent): readonly Part[] {
  const { health, environment: nodeName } = kit;
  const { claims, service, reports, hotPlug } = agent;
  const informer = claimInformer(kit, agent);
  const inputs = { claims: informer };
  const reportsHealth = health.part("reports");
  const hotPlugHealth = health.part("hot-plug");
  return [
    { name: "claims", run: (at) => informer.run(at) },
    {
      name: "reports",
      run: ({ signal }) => {
        const report = (claim: NicClaim) =>
          agent.passes.of("reports", claim, () => reportOf(kit, agent, { claim, nodeName, signal }), signal);
        const sync: Sync = ({ pass }) => {
          const listed = informer.store.list();
          if (pass === 1) claims.keepOnly(new Set(listed.map(({ metadata }) => metadata.name)));
          return reportEach(listed, report, { signal });
        };
        return reconcile({ dirty: reports, inputs, health: reportsHealth, signal, resyncMs: RESYNC_MS, sync });
      },
    },
    {
      name: "hot-plug",
      run: ({ signal }) => {
        // A claim read from disk may be older than the NICs that the previous agent created.
        const sync: Sync = (options) => service.follow(options);
        return reconcile({ dirty: hotPlug, inputs, health: hotPlugHealth, signal, resyncMs: RESYNC_MS, sync });
      },
    },
  ];
}

function claimInformer({ api, environment, health }: NicAgentKit, agent: Agent): Informer<NicClaim, NicClaim> {
  const { claims, losses, used, reports, hotPlug, switches, recording } = agent;
  const informer = createInformer(api, nicResources.nicClaims, {
    labelSelector: `${CLAIM_NODE_LABEL}=${nodeLabelValue(environment)}`,
    onHealth: informerHealth(health, "nicclaims"),
    steps: recording?.stepsFor(nicResources.nicClaims),
    clock: systemClock,
  });
  const noteSwitches = (): void => {
    if (used.hasChanged) switches.mark("switches in use");
  };
  const onClaim = (claim: NicClaim): void => {
    claims.set(claim);
    reports.mark("claim");
    hotPlug.mark("claim");
    noteSwitches();
  };
  informer.addHandler({
    onAdd: (claim) => onClaim(claim),
    onUpdate: (_before, claim) => onClaim(claim),
    onDelete: ({ metadata: { name, namespace } }) => {
      claims.remove(name, namespace);
      noteSwitches();
      if (claims.get(name) === undefined) losses.forget(name);
    },
  });
  return informer;
}

/** Returns true if the claim's status was written. */
async function reportOf(
  { api }: Pick<NicAgentKit, "api">,
  { service, losses }: Pick<Agent, "service" | "losses">,
  { claim, nodeName, signal }: { readonly claim: NicClaim; readonly nodeName: string; readonly signal: AbortSignal },
): Promise<boolean> {
  const uid = claim.metadata.name;
  const { isPlugged, nics } = service.stateOf(uid);
  const state = { isPlugged, lost: losses.of(uid), nics: nics === undefined ? undefined : shownNics(nics, claim) };
  const report = plannedReport(claim, state, { nodeName, now: systemClock.now() });
  if (report === undefined) return false;
  await applyReport(api, claim, report, { signal });
  return true;
}
