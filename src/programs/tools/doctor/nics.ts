import { hostname } from "node:os";
import { dirname, join } from "node:path";
import { systemClock } from "#base/clock";
import { type DoctorCheck, type Fact, readFact } from "#base/diagnosis";
import { ExpectedError } from "#base/errors";
import { countFlows } from "#cloud/openflow";
import { isOvn, OpenVSwitch, type OvsBridge } from "#cloud/ovsdb";
import { inspectNicAgent } from "#features/cni";
import { decodeNicNode, judgeNode, type NicNode } from "#features/nic-report";
import { type KubeClient, resources } from "#kube/client";
import { CLAIM_NODE_LABEL, type NicClaim, nicResources, nodeLabelValue, PROVIDER_HOST_ANNOTATION } from "#kube/nic";
import { openClient } from "../../shared/daemon/index.ts";

/** The values of the flags of this part, and of the API server. */
export interface NicDoctorValues {
  readonly nics: boolean;
  readonly nicSocket: string;
  readonly ovsdb: string;
  readonly integrationBridge: string;
  readonly kubeconfig: string | undefined;
}

/** Time of the switch's answers, in milliseconds. */
const SWITCH_MS = 5000;

/** `nic-agent` of another version cannot tell. */
class AgentVersionError extends ExpectedError<"version"> {
  override readonly name = "AgentVersionError";
}

/** Looks at this node. */
export async function nicChecks(
  values: NicDoctorValues,
  at: { readonly signal: AbortSignal },
): Promise<readonly DoctorCheck[]> {
  const { nicSocket, ovsdb, integrationBridge } = values;
  const ovs = new OpenVSwitch({ clock: systemClock }, { socketPath: ovsdb, timeoutMs: SWITCH_MS });
  const [agent, bridges, ids] = await Promise.all([
    readFact(() => askAgent(nicSocket, at)),
    readFact(() => ovs.bridges(at)),
    readFact(() => ovs.externalIds(at)),
  ]);
  const switchIds = "fault" in ids ? {} : ids.value;
  const served = ({ name, controllers }: OvsBridge): boolean =>
    controllers.some(({ isConnected }) => isConnected) || (isOvn(switchIds) && name === integrationBridge);
  const flows =
    "fault" in bridges ? new Map<string, Fact<number>>() : await readFlows(bridges.value.filter(served), ovsdb, at);
  const node = "value" in agent ? agent.value.node : (process.env["COIL_NODE_NAME"] ?? hostname());
  const api = await readFact(() => openClient("doctor", values, { clock: systemClock }));
  const own = "fault" in api ? { host: api, claims: undefined } : await readNode(api.value, node, at);
  const name = hostname();
  // A chassis of OVN has the name that its switch has.
  const chassis = isOvn(switchIds) ? (switchIds["hostname"] ?? "") : "";
  return judgeNode({
    agent,
    ovsdb,
    bridges,
    switchIds,
    flows,
    integrationBridge,
    ...own,
    // By default the provider's agents of a machine have the name of its kernel.
    machine: [...new Set([...(chassis === "" ? [] : [chassis]), name, name.split(".")[0] ?? name])],
  });
}

/** The flows of bridges. */
async function readFlows(
  bridges: readonly OvsBridge[],
  ovsdb: string,
  at: { readonly signal: AbortSignal },
): Promise<ReadonlyMap<string, Fact<number>>> {
  const counts = bridges.map(async ({ name }) => {
    const path = join(dirname(ovsdb), `${name}.mgmt`);
    const count = await readFact(() => countFlows({ clock: systemClock }, path, { ...at, timeoutMs: SWITCH_MS }));
    return [name, count] as const;
  });
  return new Map(await Promise.all(counts));
}

async function askAgent(socket: string, at: { readonly signal: AbortSignal }): Promise<NicNode> {
  const answer = await inspectNicAgent(socket, at);
  if (answer === undefined) throw new AgentVersionError("version", "it is of a version that cannot tell what it has");
  return decodeNicNode(answer);
}

async function readNode(
  client: KubeClient,
  node: string,
  at: { readonly signal: AbortSignal },
): Promise<{
  readonly host: Fact<{ readonly node: string; readonly providerHost: string | undefined }>;
  readonly claims: Fact<readonly NicClaim[]>;
}> {
  await using api = client;
  const [host, claims] = await Promise.all([
    readFact(async () => {
      const { metadata } = await api.get(resources.nodes, { name: node }, at);
      return { node, providerHost: metadata.annotations?.[PROVIDER_HOST_ANNOTATION] || undefined };
    }),
    readFact(async () => {
      const labelSelector = `${CLAIM_NODE_LABEL}=${nodeLabelValue(node)}`;
      return (await api.listAll(nicResources.nicClaims, { ...at, labelSelector })).items;
    }),
  ]);
  return { host, claims };
}
