import { existsSync } from "node:fs";
import { systemClock } from "#base/clock";
import { ConfigError } from "#base/config";
import { ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";
import type { VpcPort } from "#cloud/vpc";
import { inspectNicAgent } from "#features/cni";
import { defaultNic, gatewaysOf, routeMetric } from "#features/nic";
import { planRouting } from "#features/nic-cni";
import { decodeNicNode, explainNics, explainNicsText, type NicNode, type NicRouting } from "#features/nic-report";
import { findObject, type KubeApi, resources } from "#kube/client";
import { type NicClaim, type NicStatus, nicResources } from "#kube/nic";
import { openClient } from "../../shared/daemon/index.ts";
import { CommandProviders, readNicPolicy } from "../../shared/nic-control/index.ts";

/** `no-nics`: the pod does not exist, or has no NICs of a VPC. */
export type ExplainNicsErrorCode = "no-nics";

/** There is nothing to explain. */
export class ExplainNicsError extends ExpectedError<ExplainNicsErrorCode> {
  override readonly name = "ExplainNicsError";
}

/** The text or JSON for `pod:NAMESPACE/NAME`. Rejects with `KubeError`, `ConfigError` and {@link ExplainNicsError}. */
export async function explainPodNics(
  word: string,
  values: {
    readonly kubeconfig: string | undefined;
    readonly nicSocket: string;
    readonly nicCredentials: string | undefined;
    readonly json: boolean;
  },
  at: { readonly signal: AbortSignal },
): Promise<string> {
  const [, namespace = "", name = ""] = /^pod:([^/]+)\/([^/]+)$/.exec(word) ?? [];
  if (name === "") throw new ConfigError("invalid-flags", [`"${word}" is not pod:NAMESPACE/NAME`]);
  await using api = await openClient("explain", values, { clock: systemClock });
  const claim = await readClaim(api, { namespace, name }, at);
  const notes: string[] = [];
  const note = (text: string): void => void notes.push(text);
  const ports = await readPorts(api, claim, { ...at, credentials: values.nicCredentials, note });
  const node = await readAgent(values.nicSocket, claim, { ...at, note });
  const answer = explainNics({ claim, ports, node, planned: (nic) => plannedRouting(claim, nic), notes });
  return values.json ? `${JSON.stringify(answer)}\n` : explainNicsText(answer);
}

async function readClaim(
  api: KubeApi,
  ref: { readonly namespace: string; readonly name: string },
  at: { readonly signal: AbortSignal },
): Promise<NicClaim> {
  const pod = await findObject(api, resources.pods, ref, at);
  const who = `pod ${ref.namespace}/${ref.name}`;
  if (pod === undefined) throw new ExplainNicsError("no-nics", `there is no ${who}`);
  const found = await findObject(api, nicResources.nicClaims, { namespace: ref.namespace, name: pod.metadata.uid }, at);
  if (found === undefined)
    throw new ExplainNicsError(
      "no-nics",
      `${who} has no NicClaim, so no NICs of a VPC: nicctl trace ${ref.namespace}/${ref.name} tells why`,
    );
  return found;
}

interface Reading {
  readonly signal: AbortSignal;
  readonly note: (text: string) => void;
}

/** The ports of a claim; `undefined`: the provider was not asked, or does not answer. */
async function readPorts(
  api: KubeApi,
  { spec, status }: NicClaim,
  { credentials, note, signal }: Reading & { readonly credentials: string | undefined },
): Promise<ReadonlyMap<string, VpcPort> | undefined> {
  if (credentials === undefined) {
    note("the provider was not asked for the ports: no --nic-credentials");
    return undefined;
  }
  try {
    await using providers = new CommandProviders((await readNicPolicy(api, { signal })) ?? {}, credentials);
    const entry = providers.entries.find(({ name }) => name === spec.provider);
    if (entry === undefined) {
      note(`the NicPolicy has no provider ${spec.provider}`);
      return undefined;
    }
    const ids = (status?.nics ?? []).flatMap(({ portID }) => portID ?? []);
    return await providers.get(entry).getPorts(ids, { signal });
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    note(`the provider cannot be asked for the ports: ${error.message}`);
    return undefined;
  }
}

async function readAgent(
  socket: string,
  { status }: NicClaim,
  { note, signal }: Reading,
): Promise<NicNode | undefined> {
  const where = status?.nodeName === undefined ? "the pod's node" : `node ${status.nodeName}`;
  if (!existsSync(socket)) {
    note(
      `devices, routes and rules were not looked at: there is no nic-agent at ${socket}; run it on ${where}, as root`,
    );
    return undefined;
  }
  try {
    const answer = await inspectNicAgent(socket, { signal });
    const node = answer === undefined ? undefined : decodeNicNode(answer);
    if (node?.node === status?.nodeName) return node;
    note(`devices, routes and rules were not looked at: run it on ${where}, as root`);
    return undefined;
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    note(`devices, routes and rules were not looked at: nic-agent does not answer: ${error.message}`);
    return undefined;
  }
}

/** The routing that the node makes of a claim. */
function plannedRouting({ spec, status }: NicClaim, nic: NicStatus): NicRouting {
  const nics = spec.nics.map(
    ({ name }): NicStatus => status?.nics?.find((one) => one.name === name) ?? { name, state: "Unknown" },
  );
  const index = nics.findIndex(({ name }) => name === nic.name);
  const chosen = spec.nics.find(({ defaultRoute }) => defaultRoute === true)?.name;
  const addresses = (nic.ips ?? []).flatMap(({ ip, prefixLength }) => {
    const address = IpAddress.tryParse(ip);
    return address === undefined ? [] : [`${address}/${prefixLength}`];
  });
  const { routes, rules } = planRouting(
    {
      addresses,
      gateways: gatewaysOf(nic),
      hostRoutes: nic.routes ?? [],
      metric: routeMetric(nics, index, defaultNic(nics, chosen) ?? nics[0]),
    },
    index,
  );
  return {
    routes: routes.map(({ dst, via, table, metric }) =>
      [
        dst === "0.0.0.0/0" ? "default" : dst === "::/0" ? "default (IPv6)" : dst,
        ...(via === undefined ? [] : [`via ${via}`]),
        `dev ${nic.name}`,
        ...(metric === undefined ? [] : [`metric ${metric}`]),
        ...(table === undefined ? [] : [`table ${table}`]),
      ].join(" "),
    ),
    rules: rules.map(({ from, table, priority }) => `${priority}: from ${from} lookup ${table}`),
  };
}
