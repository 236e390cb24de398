import { checksOf, type DoctorCheck, type Fact } from "#base/diagnosis";
import type { PortQuota, ProviderAgent } from "#cloud/vpc";

/** The facts of a provider for a diagnosis. */
export interface ProviderReport {
  readonly name: string;
  readonly type: string;
  /** A fault of its credentials or settings; then nothing else is known. */
  readonly opened: Fact<undefined>;
  /** The first answer: the extensions of Neutron; empty for Alcor. */
  readonly extensions?: Fact<ReadonlySet<string>> | undefined;
  /** Absent: the provider has none. */
  readonly agents?: Fact<readonly ProviderAgent[]> | undefined;
  /** The VPCs that pods use, and the quota of their projects. */
  readonly vpcs: readonly {
    readonly vpc: string;
    readonly found: Fact<{ readonly projectId: string | undefined; readonly subnets: number }>;
    readonly quota?: Fact<PortQuota> | undefined;
  }[];
}

/** The share of a quota from which on it is told. */
const NEARLY = 0.9;

/** Extensions without which something is missing, and what. */
const EXTENSIONS: readonly (readonly [alias: string, state: "wrong" | "warning", lacks: string, remedy: string])[] = [
  [
    "binding",
    "wrong",
    "ports cannot be bound to hosts, or these credentials may not see that",
    "load the ML2 plugin; give the role the rights that deploy/nics/neutron-policy.yaml grants",
  ],
  [
    "standard-attr-tag",
    "warning",
    "ports get no tags, so an orphan whose owner was cleared is not found",
    "add tag to service_plugins of Neutron",
  ],
  [
    "standard-attr-timestamp",
    "warning",
    "ports have no time of creation, so orphans are never old enough to be deleted",
    "add timestamp to service_plugins of Neutron",
  ],
  [
    "revision-if-match",
    "warning",
    "a user's port may be changed by somebody else at the same time",
    "add revisions to service_plugins of Neutron",
  ],
];

/** Judges a provider. Pure. */
export function judgeProvider({ name, type, opened, extensions, vpcs }: ProviderReport): DoctorCheck[] {
  const { ok, warning, wrong, unknown } = checksOf(`provider ${name}`);
  if ("fault" in opened)
    return [wrong(opened.fault, "mend the file of credentials, or the provider's config in the NicPolicy")];
  const found: DoctorCheck[] = [];
  if (extensions !== undefined && "fault" in extensions)
    return [
      wrong(
        `does not answer as it should: ${extensions.fault}`,
        "check the URL, the network to it, the certificate of its authority and the credentials",
      ),
    ];
  if (extensions === undefined) found.push(ok(`its credentials and settings can be read (${type})`));
  else {
    found.push(
      ok(`answers by these credentials${type === "neutron" ? `, with ${extensions.value.size} extensions` : ""}`),
    );
    for (const [alias, state, lacks, remedy] of type === "neutron" ? EXTENSIONS : [])
      if (!extensions.value.has(alias))
        found.push((state === "wrong" ? wrong : warning)(`lacks the extension ${alias}: ${lacks}`, remedy));
  }
  for (const { vpc, found: network, quota } of vpcs) {
    if ("fault" in network) {
      found.push(
        wrong(`VPC ${vpc}: ${network.fault}`, "correct isthmus.dev/vpc of its pods, or vpcBindings of the NicPolicy"),
      );
      continue;
    }
    const { projectId = "of no name", subnets } = network.value;
    if (subnets === 0) found.push(wrong(`VPC ${vpc} has no subnet, so its ports get no address`, "add a subnet"));
    if (quota === undefined) continue;
    if ("fault" in quota) found.push(unknown(`the quota of project ${projectId} cannot be read: ${quota.fault}`));
    else found.push(quotaCheck(projectId, quota.value, { ok, warning, wrong }));
  }
  return found;
}

function quotaCheck(
  project: string,
  { limit, used }: PortQuota,
  { ok, warning, wrong }: Pick<ReturnType<typeof checksOf>, "ok" | "warning" | "wrong">,
): DoctorCheck {
  const text = `project ${project} uses ${used} ports of ${limit ?? "any number"}`;
  const remedy = "raise its quota of ports, or delete ports: nicctl gc finds those that nobody uses";
  if (limit === undefined || used < NEARLY * limit) return ok(text);
  return used >= limit ? wrong(text, remedy) : warning(text, remedy);
}

/** A node as a diagnosis knows it. */
export interface NodeName {
  readonly name: string;
  /** The annotation with its name at the provider. */
  readonly providerHost: string | undefined;
  /** True if pods on it have NICs, or its nic-agent runs. */
  readonly isUsed: boolean;
}

/** Judges for each node whether the provider has an agent on its host that is alive. Pure. */
export function judgeHosts(
  provider: string,
  agents: Fact<readonly ProviderAgent[]>,
  nodes: readonly NodeName[],
): DoctorCheck[] {
  if ("fault" in agents) {
    const remedy = "give the role of these credentials the right get_agent";
    return [checksOf(`provider ${provider}`).unknown(`its agents cannot be read: ${agents.fault}`, remedy)];
  }
  return nodes.map((node) => judgeHost(node, agents.value, provider));
}

/** Agents that serve ports of nodes; those of DHCP, routing or metadata do not. */
function isOfPorts({ kind }: ProviderAgent): boolean {
  return !/dhcp|l3|metadata|metering|loadbalancer|bgp/i.test(kind);
}

function judgeHost(
  { name, providerHost, isUsed }: NodeName,
  all: readonly ProviderAgent[],
  provider: string,
): DoctorCheck {
  const { ok, warning, wrong } = checksOf(`node ${name}`);
  const agents = all.filter(isOfPorts);
  const host = providerHost ?? name;
  const own = agents.filter((agent) => agent.host === host);
  const alive = own.find(({ isAlive }) => isAlive);
  if (alive !== undefined) return ok(`${alive.kind} of ${provider} is alive on host ${host}`);
  const [dead] = own;
  if (dead !== undefined)
    return wrong(
      `${dead.kind} of ${provider} on host ${host} is not alive, so ports of its pods stay down`,
      `start the agent on ${name}, and look at its log`,
    );
  const like = agents
    .filter((agent) => isLike(agent.host, name) || isLike(agent.host, host))
    .map((agent) => agent.host);
  const [likely] = [...new Set(like)].sort();
  const said = providerHost === undefined ? `${host}, as the Node is named` : `${host}, as its annotation says`;
  const hosts = [...new Set(agents.map((agent) => agent.host))].sort();
  const known = hosts.length === 0 ? "it has no agents at all" : `hosts with agents: ${hosts.slice(0, 10).join(", ")}`;
  const text = `${provider} has no agent on host ${said}; ${known}`;
  if (likely !== undefined)
    return wrong(text, `kubectl annotate node ${name} --overwrite isthmus.dev/provider-host=${likely}`);
  const remedy = `install the agent on ${name}, or set isthmus.dev/provider-host of the Node to the host of its agent`;
  // A control plane, for example, need not have pods with NICs.
  return isUsed ? wrong(text, remedy) : warning(text, remedy);
}

/** Returns true if two names may be of one host: one of them with its domain, or in other letters. */
function isLike(one: string, other: string): boolean {
  const short = (name: string): string => name.toLowerCase().split(".")[0] ?? "";
  return short(one) === short(other);
}
