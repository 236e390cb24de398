import { systemClock } from "#base/clock";
import { type DoctorCheck, doctorText, type Fact, readFact } from "#base/diagnosis";
import type { Vpc } from "#cloud/vpc";
import { isOfAnyProject } from "#features/nic";
import {
  judgeAgents,
  judgeClaims,
  judgeClusterId,
  judgeHosts,
  judgeLease,
  judgePolicy,
  judgeProvider,
  judgeWebhooks,
  type ProviderReport,
  runsNicAgent,
  type WebhookConfiguration,
} from "#features/nic-report";
import { findObject, type KubeClient, type Node, type Pod, resources } from "#kube/client";
import { type NicClaim, type NicPolicySpec, nicResources, PROVIDER_HOST_ANNOTATION } from "#kube/nic";
import { openClient } from "../../shared/daemon/index.ts";
import { CommandProviders, type ProviderEntry, readNicPolicy } from "../../shared/nic-control/index.ts";
import { EXIT } from "../../shared/program/index.ts";
import { NIC_NAMES } from "../../shared/webhooks/index.ts";
import type { NicctlValues } from "./flags.ts";

const NAMESPACE = "kube-system";
const LEASE = "nic-controller-leader";
const SERVICE = "nic-webhook-service";
/** VPCs that are looked up. */
const MAX_VPCS = 50;

/** `nicctl doctor`: what is wrong with providers, webhooks, controller and nodes. Its exit code is 1 if something is. */
export async function doctor(
  _words: readonly string[],
  { values, output, signal }: { readonly values: NicctlValues; readonly output: string; readonly signal: AbortSignal },
): Promise<number> {
  await using api = await openClient("nicctl", values, { clock: systemClock });
  const at = { signal };
  const [policy, claims, nodes, lease, pods, uid] = await Promise.all([
    readFact(() => readNicPolicy(api, at)),
    readFact(async () => (await api.listAll(nicResources.nicClaims, at)).items),
    readFact(async () => (await api.listAll(resources.nodes, at)).items),
    readFact(() => findObject(api, resources.leases, { namespace: NAMESPACE, name: LEASE }, at)),
    readFact(async () => (await api.listAll(resources.pods, { ...at, namespace: NAMESPACE })).items),
    readFact(async () => (await findObject(api, resources.namespaces, { name: NAMESPACE }, at))?.metadata.uid),
  ]);
  await using providers = new CommandProviders(
    ("value" in policy ? policy.value : undefined) ?? {},
    values.credentials,
  );
  const checks: DoctorCheck[] = [
    judgePolicy(policy, isOfAnyProject),
    judgeLease(lease, systemClock.now()),
    judgeClusterId(claims, uid),
    ...(await webhookChecks(api, at)),
    ...(await providerChecks(providers, { policy, claims, nodes, pods }, at)),
    ...("fault" in nodes
      ? [{ state: "unknown", subject: "nodes", text: `the Nodes cannot be read: ${nodes.fault}` } as const]
      : judgeAgents(pods, nodeNames(nodes.value, { claims, pods }))),
    ...judgeClaims(claims, systemClock.now()),
  ];
  process.stdout.write(output === "json" ? `${JSON.stringify({ checks })}\n` : doctorText(checks));
  return checks.some(({ state }) => state === "wrong") ? EXIT.failed : EXIT.ok;
}

interface Facts {
  readonly policy: Fact<NicPolicySpec | undefined>;
  readonly claims: Fact<readonly NicClaim[]>;
  readonly nodes: Fact<readonly Node[]>;
  readonly pods: Fact<readonly Pod[]>;
}

async function webhookChecks(api: KubeClient, at: { readonly signal: AbortSignal }): Promise<readonly DoctorCheck[]> {
  const { mutating, validating, secret } = NIC_NAMES;
  const [one, other, endpoints, certificate] = await Promise.all([
    readFact<WebhookConfiguration | undefined>(() =>
      findObject(api, resources.mutatingWebhookConfigurations, { name: mutating }, at),
    ),
    readFact<WebhookConfiguration | undefined>(() =>
      findObject(api, resources.validatingWebhookConfigurations, { name: validating }, at),
    ),
    readFact(async () => {
      const labelSelector = `kubernetes.io/service-name=${SERVICE}`;
      return (await api.listAll(resources.endpointSlices, { ...at, namespace: NAMESPACE, labelSelector })).items;
    }),
    readFact(() => findObject(api, resources.secrets, secret, at)),
  ]);
  return judgeWebhooks({
    configurations: new Map([
      [mutating, one],
      [validating, other],
    ]),
    endpoints,
    secret: certificate,
    now: systemClock.now(),
  });
}

async function providerChecks(
  providers: CommandProviders,
  facts: Facts,
  at: { readonly signal: AbortSignal },
): Promise<readonly DoctorCheck[]> {
  const checks: DoctorCheck[] = [];
  for (const entry of providers.entries) {
    const report = await reportOf(providers, entry, facts, at);
    checks.push(...judgeProvider(report));
    const { agents } = report;
    const { nodes } = facts;
    if (agents !== undefined && "value" in nodes)
      checks.push(...judgeHosts(entry.name, agents, nodeNames(nodes.value, facts)));
  }
  return checks;
}

async function reportOf(
  providers: CommandProviders,
  entry: ProviderEntry,
  facts: Facts,
  at: { readonly signal: AbortSignal },
): Promise<ProviderReport> {
  const { name, type } = entry;
  const opened = await readFact(async () => providers.get(entry));
  if ("fault" in opened) return { name, type, opened, vpcs: [] };
  const provider = opened.value;
  const common = { name, type, opened: { value: undefined } };
  const { diagnosis } = provider;
  if (diagnosis === undefined) {
    // No port has this device; the answer shows that the server gives one.
    const answers = async (): Promise<ReadonlySet<string>> => {
      await provider.findPorts([crypto.randomUUID()], at);
      return new Set();
    };
    return { ...common, extensions: await readFact(answers), vpcs: [] };
  }
  const extensions = await readFact(() => diagnosis.extensions(at));
  if ("fault" in extensions) return { ...common, extensions, vpcs: [] };
  const quotas = new Map<string, ProviderReport["vpcs"][number]["quota"]>();
  const vpcs: ProviderReport["vpcs"][number][] = [];
  for (const ref of vpcsOf(entry, providers.entries, facts)) {
    const found: Fact<Vpc> = await readFact(() => provider.resolve(ref, at));
    if ("fault" in found) {
      vpcs.push({ vpc: ref.vpc, found });
      continue;
    }
    const { projectId, subnets } = found.value;
    const isNew = projectId !== undefined && !quotas.has(projectId);
    if (isNew) quotas.set(projectId, await readFact(() => diagnosis.portQuota(projectId, at)));
    const quota = isNew ? quotas.get(projectId) : undefined;
    vpcs.push({
      vpc: ref.vpc,
      found: { value: { projectId, subnets: subnets.length } },
      ...(quota === undefined ? {} : { quota }),
    });
  }
  return { ...common, extensions, agents: await readFact(() => diagnosis.agents(at)), vpcs };
}

/** The VPCs of a provider that pods use or that the policy binds. */
function vpcsOf(
  { name, default: isDefault }: ProviderEntry,
  all: readonly ProviderEntry[],
  { policy, claims }: Facts,
): readonly { readonly vpc: string; readonly projectId: string | undefined }[] {
  const bindings = "value" in policy ? (policy.value?.vpcBindings ?? []) : [];
  const ofClaims = "value" in claims ? claims.value.filter(({ spec }) => spec.provider === name) : [];
  const isOwn = (provider: string | undefined): boolean =>
    provider === undefined ? isDefault === true || all.length === 1 : provider === name;
  const refs = [
    ...bindings.filter(({ provider }) => isOwn(provider)).map(({ vpc, projectID }) => ({ vpc, projectId: projectID })),
    ...ofClaims.map(({ spec }) => ({ vpc: spec.vpc, projectId: spec.projectID })),
  ];
  const distinct = new Map(refs.map((ref) => [`${ref.projectId ?? ""}/${ref.vpc}`, ref]));
  return [...distinct.values()].slice(0, MAX_VPCS);
}

function nodeNames(nodes: readonly Node[], { claims, pods }: Pick<Facts, "claims" | "pods">) {
  const used = new Set("value" in claims ? claims.value.flatMap(({ status }) => status?.nodeName ?? []) : []);
  return nodes.map(({ metadata: { name, annotations = {} } }) => ({
    name,
    providerHost: annotations[PROVIDER_HOST_ANNOTATION] || undefined,
    isUsed:
      used.has(name) || ("value" in pods && pods.value.some((pod) => pod.spec?.nodeName === name && runsNicAgent(pod))),
  }));
}
