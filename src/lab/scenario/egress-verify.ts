import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import type { KubeApi } from "#kube/client";
import { type LabEgress, LabError, type LabState } from "#lab/host";
import { WhoServers } from "./egress-hosts.ts";
import { drainRouter, killRouter, type Pair } from "./egress-losses.ts";
import {
  applyClients,
  applyEgresses,
  type ClientPod,
  destinationsOf,
  EGRESSES,
  type EgressName,
  editEgress,
  type RouterPod,
  waitForRouters,
} from "./egress-objects.ts";
import { type EgressReport, type EgressTry, type LiveReport, NO_ANSWER } from "./egress-report.ts";
import { scaleRouters } from "./egress-scale.ts";
import { Stream, seenSource } from "./egress-traffic.ts";

/** The time limit for routers and clients, in milliseconds. */
const PODS_MS = 120_000;
/** The time that the tunnels may take until every source is as wanted, in milliseconds. */
const SETTLE_MS = 20_000;
const AGAIN_MS = 200;
/** Timeout of a try. Where no answer can come, each try lasts as long. */
const ANSWER_MS = 1000;
/** Timeout and pause of the tries of a destination that was just added, in milliseconds. */
const LIVE = { timeoutMs: 100, everyMs: 10, deadlineMs: 10_000 } as const;

interface Test {
  readonly api: KubeApi;
  readonly at: LabEgress;
  readonly clients: readonly ClientPod[];
  readonly routers: readonly RouterPod[];
}

type Options = AbortOptions & { readonly signal: AbortSignal };

/**
 * Creates Egresses and their clients, and compares the sources that hosts outside and pods see. Then adds a destination to a live Egress,
 * takes the power from a router, drains another one, and scales, under load. Failures are in the report. Rejects with {@link LabError}
 * `not-reached` if pods do not get ready, with `KubeError`, `KernelError` and the signal's reason.
 */
export async function verifyEgress(
  {
    api,
    state,
    at,
    say,
  }: {
    readonly api: KubeApi;
    readonly state: Pick<LabState, "identity" | "nodes">;
    readonly at: LabEgress;
    readonly say: (text: string) => void;
  },
  options: Options,
): Promise<EgressReport> {
  const startedMs = performance.now();
  const deadline = { ...options, deadlineMs: PODS_MS };
  say("creating Egresses, their routers and clients");
  await applyEgresses(api, { at, identity: state.identity }, deadline);
  const clients = await applyClients(api, { at, identity: state.identity }, deadline);
  const routers = (await Promise.all(EGRESSES.map((egress) => waitForRouters(api, at, egress, deadline)))).flat();
  await using servers = new WhoServers();
  for (const address of at.sites.flatMap(({ addresses }) => addresses))
    await servers.serve({ name: at.outside }, IpAddress.parse(address));
  for (const { netns: path, addresses } of clients.filter(({ egresses }) => egresses.length === 0))
    for (const address of addresses) await servers.serve({ path }, address);
  const test: Test = { api, at, clients, routers };
  const tries = await settled(() => tryOutside(test, options), options);
  const inCluster = await settled(() => tryInCluster(test, options), options);
  say("adding a destination to a live Egress");
  const live = await addDestination(test, options);
  const pair = pairOf(test);
  say("taking the power from a router under load");
  const kill = await killRouter(pair, options);
  say("draining a router under load");
  const drain = await drainRouter(pair, options);
  say("scaling an Egress under load");
  const scale = await scaleRouters(pair, state.nodes, options);
  return {
    driver: driverOf(clients),
    routers: routers.map(({ name, node, addresses }) => ({ name, node, addresses: addresses.map(String) })),
    tries,
    inCluster,
    live,
    kill,
    drain,
    scale,
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(2)),
  };
}

/** Tries until all results are as wanted, or the deadline. */
function settled(tryAll: () => Promise<readonly EgressTry[]>, { signal }: Options): Promise<readonly EgressTry[]> {
  return poll(tryAll, {
    until: (tries) => tries.every(({ ok }) => ok),
    everyMs: AGAIN_MS,
    deadlineMs: SETTLE_MS,
    signal,
    clock: systemClock,
  });
}

/** Every pod to the host of every site, in each family. */
async function tryOutside({ at, clients, routers }: Test, options: Options): Promise<readonly EgressTry[]> {
  const hosts = EGRESSES.flatMap((egress) =>
    (at.sites.find(({ name }) => name === egress)?.addresses ?? []).map((text, family) => {
      const address = IpAddress.parse(text);
      // Destinations are in the order of families too.
      return { egress, address, hasEgress: destinationsOf(egress, at)[family] !== undefined };
    }),
  );
  const tries = clients.flatMap((client) =>
    hosts.map(async ({ egress, address, hasEgress }): Promise<EgressTry> => {
      const uses = hasEgress && client.egresses.includes(egress);
      const allowed = uses ? sourcesOf(routers, egress, address) : [NO_ANSWER];
      return oneTry(
        client,
        { address, site: `site ${egress}`, allowed, wanted: uses ? `a router of ${egress}` : NO_ANSWER },
        options,
      );
    }),
  );
  return Promise.all(tries);
}

/** Every client to every pod without an Egress. */
async function tryInCluster({ clients }: Test, options: Options): Promise<readonly EgressTry[]> {
  const plain = clients.filter(({ egresses }) => egresses.length === 0);
  const tries = clients
    .filter(({ egresses }) => egresses.length > 0)
    .flatMap((client) =>
      plain.flatMap(({ name, addresses }) =>
        addresses.map((address) => {
          const allowed = client.addresses.filter(({ family }) => family === address.family).map(String);
          return oneTry(client, { address, site: name, allowed, wanted: allowed.join() }, options);
        }),
      ),
    );
  return Promise.all(tries);
}

async function oneTry(
  client: ClientPod,
  to: {
    readonly address: IpAddress;
    readonly site: string;
    readonly allowed: readonly string[];
    readonly wanted: string;
  },
  options: Options,
): Promise<EgressTry> {
  const seen = await seenSource({ path: client.netns }, to.address, { ...options, timeoutMs: ANSWER_MS });
  const got = "source" in seen ? seen.source : NO_ANSWER;
  const { site, address, wanted, allowed } = to;
  return { from: client.name, to: `${site} ${address}`, wanted, got, ok: allowed.includes(got) };
}

/** Pure: the addresses of an Egress's routers in the family of an address. */
function sourcesOf(routers: readonly RouterPod[], egress: EgressName, { family }: IpAddress): readonly string[] {
  return routers
    .filter((router) => router.egress === egress)
    .flatMap(({ addresses }) => addresses.filter((address) => address.family === family).map(String));
}

/** Adds the third site to the Egress `both`, and measures until a client reaches it, while a stream to the first one runs. */
async function addDestination({ api, at, clients, routers }: Test, options: Options): Promise<LiveReport> {
  const client = clients.find(({ egresses }) => egresses.includes("both"));
  const [known] = at.sites.find(({ name }) => name === "both")?.addresses ?? [];
  const later = at.sites.find(({ name }) => name === "later");
  const [destination] = later?.networks ?? [];
  const [added] = later?.addresses ?? [];
  if (client === undefined || known === undefined || destination === undefined || added === undefined)
    throw new LabError("not-reached", "the lab has no site to add to an Egress");
  const from = { path: client.netns };
  const address = IpAddress.parse(added);
  using stream = await Stream.open(from, IpAddress.parse(known), options);
  const changedMs = performance.now();
  await editEgress(
    api,
    at,
    { name: "both", spec: { destinations: [...destinationsOf("both", at), destination] } },
    options,
  );
  const allowed = sourcesOf(routers, "both", address);
  const look = async (): Promise<boolean> => {
    const seen = await seenSource(from, address, { ...options, timeoutMs: LIVE.timeoutMs });
    return "source" in seen && allowed.includes(seen.source);
  };
  const works = await poll(look, { ...LIVE, until: (does) => does, signal: options.signal, clock: systemClock });
  const seconds = works ? Number(((performance.now() - changedMs) / 1000).toFixed(3)) : null;
  const workedMs = performance.now();
  const streamRanOn = await poll(() => stream.hasEchoedSince(workedMs), {
    until: (has) => has || stream.isEnded,
    everyMs: AGAIN_MS,
    deadlineMs: LIVE.deadlineMs,
    signal: options.signal,
    clock: systemClock,
  });
  return { egress: "both", destination, seconds, streamRanOn };
}

function pairOf({ api, at, clients }: Test): Pair {
  const [address] = at.sites.find(({ name }) => name === "pair")?.addresses ?? [];
  if (address === undefined) throw new LabError("not-reached", "the lab has no site of the Egress pair");
  return {
    api,
    at,
    clients: clients.filter(({ egresses }) => egresses.includes("pair")),
    address: IpAddress.parse(address),
  };
}

/** The driver of the tunnels in a client, by the names of its links. */
function driverOf(clients: readonly ClientPod[]): string {
  const client = clients.find(({ egresses }) => egresses.length > 0);
  if (client === undefined) return "none";
  const kernel = openKernel();
  using netns = kernel.openNetNs({ path: client.netns });
  using stack = kernel.openStack(netns);
  const names = stack.links.list().map(({ name }) => name);
  if (names.some((name) => /^fou[46]_/.test(name))) return "fou";
  return names.some((name) => name.startsWith("nat_")) ? "vxlan" : "none";
}
