import type { CrdManifest } from "#kube/crd";
import { judgePolicies } from "../policies.ts";
import { isLeftOver, LEADERS } from "../status/cluster-rows.ts";
import type { ClusterFacts } from "./cluster-facts.ts";
import {
  addressChecks,
  crdChecks,
  namesText,
  notReady,
  poolChecks,
  strayBlocks,
  versionChecks,
  webhookChecks,
} from "./cluster-objects.ts";
import { type FaultCheck, judged } from "./faults.ts";

/** Judges a cluster. `crds` are those of this version. Parts that the cluster does not have are not judged. Pure. */
export function judgeSuiteCluster(facts: ClusterFacts, crds: readonly CrdManifest[]): readonly FaultCheck[] {
  return [
    ...crdChecks(facts, crds),
    ...webhookChecks(facts),
    ...poolChecks(facts),
    ...strayBlocks(facts),
    ...addressChecks(facts),
    ...versionChecks(facts),
    ...notReady(facts),
    ...egressChecks(facts),
    ...refusedChecks(facts),
    ...sourceRangeChecks(facts),
    ...policyChecks(facts),
    ...leaderChecks(facts),
    ...rightChecks(facts),
  ];
}

function egressChecks({ egresses, routers }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in egresses) return [judged("egress-routers", "Egresses").unknown(`cannot be read: ${egresses.fault}`)];
  if ("fault" in routers)
    return [judged("egress-routers", "Egresses").unknown(`Deployments cannot be read: ${routers.fault}`)];
  const byName = new Map((routers.value ?? []).map((one) => [`${one.metadata.namespace}/${one.metadata.name}`, one]));
  return (egresses.value ?? []).map(({ metadata: { namespace = "", name }, spec, status }) => {
    const { ok, warning, wrong } = judged("egress-routers", `Egress ${namespace}/${name}`);
    const deployment = byName.get(`${namespace}/${name}`);
    const wanted = spec?.replicas ?? 1;
    const ready = deployment?.status?.readyReplicas ?? status?.replicas ?? 0;
    if (ready >= wanted) return ok(`${ready} of ${wanted} routers are ready`);
    const remedy = `kubectl describe pods -n ${namespace} -l app.kubernetes.io/component=egress,app.kubernetes.io/instance=${name}`;
    if (deployment === undefined && ready === 0)
      return wrong("has no Deployment: no controller has made it", "look at coil-egress-controller and its log");
    return (ready === 0 ? wrong : warning)(`${ready} of ${wanted} routers are ready`, remedy);
  });
}

function refusedChecks({ refusedClients, egresses }: ClusterFacts): readonly FaultCheck[] {
  const { ok, warning, unknown } = judged("egress-refused", "pods that name an Egress");
  if ("fault" in refusedClients) return [unknown(`cannot be read: ${refusedClients.fault}`)];
  if ("fault" in egresses || (egresses.value ?? []).length === 0) return [];
  const [first] = refusedClients.value;
  if (first === undefined) return [ok("every one of them may use what it names")];
  const text = `${refusedClients.value.length} may not use an Egress that they name: ${namesText(refusedClients.value.map(({ pod }) => pod))}`;
  return [warning(text, `${first.pod}: ${first.why}`)];
}

/** Only where `service-proxy` reads the lists. */
function sourceRangeChecks({ sourceRanges, instances }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in instances || !instances.value.some(({ program }) => program === "service-proxy")) return [];
  if ("fault" in sourceRanges)
    return [judged("source-ranges", "Services").unknown(`cannot be read: ${sourceRanges.fault}`)];
  const kinds = [
    { isOpen: true, text: "let in everybody of the family that has no range" },
    { isOpen: false, text: "have an entry that cannot be read and allows nobody" },
  ];
  const found = kinds.flatMap(({ isOpen, text }) => {
    const of = sourceRanges.value.filter((one) => one.isOpen === isOpen);
    const [first] = of;
    if (first === undefined) return [];
    const { warning } = judged("source-ranges", "Services");
    const names = namesText(of.map(({ service }) => service));
    return [warning(`${of.length} ${text}: ${names}`, `${first.service}: ${first.note}`)];
  });
  return found.length > 0
    ? found
    : [judged("source-ranges", "Services").ok("each list of sources is what it seems to be")];
}

/** Only where `coild` makes the pods' network: elsewhere that network may enforce policies itself. */
function policyChecks({ policies, instances, nodes }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in instances || !instances.value.some(({ program }) => program === "coild")) return [];
  const { ok, warning, unknown } = judged("network-policy", "NetworkPolicies");
  if ("fault" in policies) return [unknown(`cannot be read: ${policies.fault}`)];
  const { state, text } = judgePolicies(policies.value, "value" in nodes ? nodes.value.length : undefined);
  if (state === "ok") return [ok(text)];
  if (state === "unknown") return [unknown(text)];
  return [
    warning(text, "run an enforcer on every node that works beside other networks, such as kube-network-policies"),
  ];
}

function leaderChecks({ leases, instances, now, pools, egresses }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in leases) return [judged("leader", "Leases").unknown(`cannot be read: ${leases.fault}`)];
  const running = new Set("value" in instances ? instances.value.map(({ program }) => program) : []);
  const served = { "coil-ipam-leader": pools, "coil-egress-leader": egresses };
  return Object.entries(LEADERS).flatMap(([name, programs]): readonly FaultCheck[] => {
    const lease = leases.value.find(({ metadata }) => metadata.name === name);
    const program = programs.find((one) => running.has(one)) ?? programs[0] ?? "";
    if (lease === undefined && !running.has(program)) return [];
    if (lease !== undefined && isLeftOver(lease, running, served)) return [];
    const { ok, wrong } = judged("leader", `Lease ${name}`);
    const remedy = `kubectl get pods -A -l app.kubernetes.io/component=${program}, and look at their logs`;
    const { holderIdentity: holder = "", renewTime, leaseDurationSeconds = 15 } = lease?.spec ?? {};
    const age = Math.round((now - Date.parse(String(renewTime))) / 1000);
    if (holder === "" || Number.isNaN(age)) return [wrong(`nobody holds it: no replica of ${program} leads`, remedy)];
    if (age > leaseDurationSeconds)
      return [
        wrong(
          `${holder} has renewed it ${age} s ago, and it lasts ${leaseDurationSeconds} s: no replica of ${program} leads`,
          remedy,
        ),
      ];
    return [ok(`${holder} leads`)];
  });
}

function rightChecks({ lackedRights }: ClusterFacts): readonly FaultCheck[] {
  if ("fault" in lackedRights)
    return [judged("rights", "accounts of programs").unknown(`cannot be reviewed: ${lackedRights.fault}`)];
  const byProgram = Map.groupBy(lackedRights.value, ({ program, account }) => `${program} (${account})`);
  return Array.from(byProgram, ([subject, lacked]) => {
    const rights = lacked.map(
      ({ right: { verb, resource, group, name } }) =>
        `${verb} ${resource}${group === "" ? "" : `.${group}`}${name === undefined ? "" : ` ${name}`}`,
    );
    return judged("rights", subject).wrong(
      `may not ${namesText(rights)}`,
      `kubectl apply -f ${manifestOf(lacked[0]?.program)}`,
    );
  });
}

/** The manifests with the rights of programs. */
const MANIFESTS: Readonly<Record<string, string>> = {
  "coil-egress": "deploy/pods/egress.yaml",
  "coil-egress-controller": "deploy/pods/egress.yaml",
  "service-proxy": "deploy/service-proxy/rbac.yaml",
  "nic-controller": "deploy/nics/rbac.yaml",
  "nic-agent": "deploy/nics/agent.yaml",
};

function manifestOf(program: string | undefined): string {
  return MANIFESTS[program ?? ""] ?? "deploy/pods/rbac.yaml";
}
