import { systemClock } from "#base/clock";
import { ConfigError } from "#base/config";
import { readFact } from "#base/diagnosis";
import { nullLogger } from "#base/log";
import { printable } from "#base/text";
import { ProviderError, type VpcProvider } from "#cloud/vpc";
import { type NicCluster, NicControllerError, OrphanCollector, type OrphanEnd } from "#features/nic-controller";
import { clusterOf, tableText } from "#features/nic-report";
import { findObject, type KubeClient, type Pod, resources } from "#kube/client";
import { type NicClaim, nicResources } from "#kube/nic";
import { openClient } from "../../shared/daemon/index.ts";
import { CommandProviders, readNicPolicy } from "../../shared/nic-control/index.ts";
import { EXIT } from "../../shared/program/index.ts";
import type { NicctlValues } from "./flags.ts";

interface Found {
  readonly provider: string;
  readonly port: string;
  readonly name: string;
  readonly addresses: readonly string[];
  readonly createdAt: string;
  readonly isDeleted: boolean;
  /** The reason why it could not be deleted. */
  readonly error?: string;
  /** The reason why it is not deleted. */
  readonly left?: string;
}

/**
 * `nicctl gc`: the ports of this cluster that nobody wants, by the controller's rules; with `--delete` they are deleted. One that cannot be deleted is told, and
 * holds up no other, and neither does a provider that does not answer. Rejects with `KubeError` and `ConfigError`, once it has told what it has deleted before.
 */
export async function collectGarbage(
  _words: readonly string[],
  { values, output, signal }: { readonly values: NicctlValues; readonly output: string; readonly signal: AbortSignal },
): Promise<number> {
  await using api = await openClient("nicctl", values, { clock: systemClock });
  const policy = (await readNicPolicy(api, { signal })) ?? {};
  await using providers = new CommandProviders(policy, values.credentials);
  const before = await readCluster(api, { signal });
  const clusterId = values.clusterId ?? clusterOf(before.claims) ?? (await uidOfCluster(api, before, { signal }));
  if (clusterId === undefined)
    throw new ConfigError("invalid-flags", [
      "--cluster-id: NicClaims tell several ids of this cluster, or none and the namespace kube-system cannot be read; give the one that nic-controller logs",
    ]);
  const found: Found[] = [];
  /** The first failure of each provider that could not be asked to the end. */
  const failures: (readonly [provider: string, error: ProviderError | NicControllerError])[] = [];
  let isWhole = false;
  try {
    for (const entry of providers.entries) {
      const options = { clusterId, minAgeMs: values.minAge, isDryRun: !values.delete, before, signal };
      try {
        for await (const { port, error, left } of orphans(api, providers.get(entry), options)) {
          found.push({
            provider: entry.name,
            port: port.id,
            name: port.name,
            addresses: port.addresses.map(({ ip }) => ip),
            createdAt: port.createdAt,
            isDeleted: values.delete && error === undefined && left === undefined,
            ...(error === undefined ? {} : { error: error.message }),
            ...(left === undefined ? {} : { left }),
          });
        }
      } catch (error) {
        if (!(error instanceof ProviderError || error instanceof NicControllerError)) throw error;
        failures.push([entry.name, error]);
      }
    }
    isWhole = failures.length === 0;
  } finally {
    const text = output === "json" ? `${JSON.stringify({ clusterId, ports: found })}\n` : gcText(found, clusterId);
    if (isWhole || found.length > 0) process.stdout.write(text);
  }
  for (const [provider, error] of failures)
    process.stderr.write(`${printable(`nicctl gc: provider ${provider}: ${error.message}`)}\n`);
  const isDone = failures.length === 0 && found.every(({ error }) => error === undefined);
  return isDone ? EXIT.ok : EXIT.failed;
}

function gcText(found: readonly Found[], clusterId: string): string {
  if (found.length === 0) return `no port of cluster ${clusterId} is without a NicClaim\n`;
  const table = tableText(
    ["PROVIDER", "PORT", "NAME", "ADDRESSES", "CREATED"],
    found.map(({ provider, port, name, addresses, createdAt }) => [
      provider,
      port,
      name,
      addresses.join(","),
      createdAt,
    ]),
  );
  const left = found.flatMap((one) => (one.left === undefined ? [] : [`${one.port} is left: ${one.left}\n`]));
  const unused = found.length - left.length;
  const deleted = found.filter((one) => one.isDeleted).length;
  const failed = found.flatMap(({ port, error }) =>
    error === undefined ? [] : [`${port} was not deleted: ${error}\n`],
  );
  const end =
    deleted + failed.length > 0
      ? `${deleted} ports of cluster ${clusterId} were deleted\n${failed.join("")}`
      : unused > 0
        ? `${unused} ports of cluster ${clusterId} would be deleted: nicctl gc --delete\n`
        : "";
  return `${table}${left.join("")}${end}`;
}

/** The uid of the namespace kube-system, which a controller without claims has as its id; `undefined`: it cannot be read, or claims have ids. */
async function uidOfCluster(
  api: KubeClient,
  { claims }: Lists,
  options: { readonly signal: AbortSignal },
): Promise<string | undefined> {
  if (claims.length > 0) return undefined;
  const read = await readFact(() => findObject(api, resources.namespaces, { name: "kube-system" }, options));
  return "value" in read ? read.value?.metadata.uid : undefined;
}

interface Lists {
  readonly claims: readonly NicClaim[];
  readonly pods: ReadonlyMap<string, Pod>;
}

async function readCluster(api: KubeClient, options: { readonly signal: AbortSignal }): Promise<Lists> {
  const [claims, pods] = await Promise.all([
    api.listAll(nicResources.nicClaims, options),
    api.listAll(resources.pods, options),
  ]);
  return { claims: claims.items, pods: new Map(pods.items.map((pod) => [pod.metadata.uid, pod])) };
}

/** Two looks of the controller's collector, each with lists of its own; the second one deletes. */
async function* orphans(
  api: KubeClient,
  provider: VpcProvider,
  options: {
    readonly clusterId: string;
    readonly minAgeMs: number;
    readonly isDryRun: boolean;
    readonly before: Lists;
    readonly signal: AbortSignal;
  },
): AsyncGenerator<OrphanEnd, void, undefined> {
  const { clusterId, minAgeMs, isDryRun, signal } = options;
  let lists = options.before;
  const none = (): void => undefined;
  const observer = { event: none, created: none, duplicates: none, active: none, orphans: none };
  const cluster: NicCluster = {
    claim: (namespace, uid) =>
      lists.claims.find(({ metadata }) => metadata.namespace === namespace && metadata.name === uid),
    claims: () => lists.claims,
    pod: (uid) => {
      const pod = lists.pods.get(uid);
      return pod === undefined
        ? undefined
        : { metadata: pod.metadata, spec: { nodeName: pod.spec?.nodeName }, status: { phase: pod.status?.phase } };
    },
    namespace: () => undefined,
    node: () => undefined,
    policy: () => ({}),
  };
  const collector = new OrphanCollector(
    { api, cluster, observer, log: nullLogger, clock: systemClock },
    { clusterId, minAgeMs, isDryRun },
  );
  await collector.pass(provider, { signal });
  lists = await readCluster(api, { signal });
  yield* collector.each(provider, { signal });
}
