import { systemClock } from "#base/clock";
import type { VpcPort } from "#cloud/vpc";
import { inspectNicAgent } from "#features/cni";
import { DEVICE_OWNER } from "#features/nic-controller";
import { auditNicCluster, decodeNicNode, type NicAudit, type NicNode, type PortSource } from "#features/nic-report";
import { isKubeError, type KubeApi } from "#kube/client";
import type { NicPolicySpec } from "#kube/nic";
import { CommandProviders, nicAuditRules, readNicPolicy } from "../nic-control/index.ts";

/** The sources of the state of NICs besides the API server. */
export interface NicSources {
  /** The sockets of `nic-agent`. */
  readonly sockets: readonly string[];
  /** The credentials of the providers, as `nic-controller` has them; absent: no provider is asked. */
  readonly credentials: string | undefined;
  readonly clusterId: string | undefined;
}

/** Compares NICs of VPCs; `undefined`: there are none. Rejects with `KubeError`, `GrpcCallError`, `InspectionError` and `NicReportError`. */
export async function auditNicsOf(
  api: KubeApi,
  { sockets, credentials, clusterId }: NicSources,
  { note, ...at }: { readonly note: (text: string) => void; readonly signal: AbortSignal },
): Promise<NicAudit | undefined> {
  const policy = credentials === undefined ? undefined : await policyOf(api, at);
  await using opened = credentials === undefined ? undefined : new CommandProviders(policy ?? {}, credentials);
  if (opened === undefined && sockets.length > 0) note("ports of providers are not compared: no --nic-credentials");
  const audit = await auditNicCluster(
    {
      api,
      inspect: () => inspectAgents(sockets, { note, ...at }),
      ...(opened === undefined ? {} : { ports: portSource(opened) }),
      rules: nicAuditRules,
      now: () => systemClock.now(),
      note,
    },
    { ...at, clusterId },
  );
  return audit;
}

/** A cluster without the type has no policy. */
async function policyOf(api: KubeApi, at: { readonly signal: AbortSignal }): Promise<NicPolicySpec | undefined> {
  try {
    return await readNicPolicy(api, at);
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
    return undefined;
  }
}

async function inspectAgents(
  sockets: readonly string[],
  { note, signal }: { readonly note: (text: string) => void; readonly signal: AbortSignal },
): Promise<readonly NicNode[]> {
  const answers = await Promise.all(
    sockets.map(async (socket) => ({ socket, answer: await inspectNicAgent(socket, { signal }) })),
  );
  return answers.flatMap(({ socket, answer }) => {
    if (answer !== undefined) return [decodeNicNode(answer)];
    note(`NICs of the node of ${socket} are not compared: its nic-agent is of another version`);
    return [];
  });
}

/** The ports of all providers of the policy. */
function portSource(providers: CommandProviders): PortSource {
  const of = (name: string) => {
    const entry = providers.entries.find((one) => one.name === name);
    if (entry === undefined) throw new Error(`there is no provider ${name}`);
    return providers.get(entry);
  };
  return {
    names: providers.entries.map(({ name }) => name),
    owned: async (name, options) => {
      const ports: VpcPort[] = [];
      for await (const port of of(name).eachOwned(DEVICE_OWNER, options)) ports.push(port);
      return ports;
    },
    withIds: async (name, ids, options) => [...(await of(name).getPorts(ids, options)).values()],
  };
}
