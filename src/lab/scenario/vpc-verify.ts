import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { parseYamlStream, YamlError } from "#base/yaml";
import { convertManifests } from "#features/nic";
import { type Draft, findObject, type KubeApi, type Pod, resources } from "#kube/client";
import { type NicClaim, nicResources } from "#kube/nic";
import { LabError, type LabVpc } from "#lab/host";
import { NETNS_ANNOTATION } from "#lab/kubelet";
import { NeutronApi, type NeutronObject } from "#lab/neutron";
import { createOwn, type LabIdentity } from "#lab/ownership";
import { type PingSource, pingMesh } from "#lab/ping";
import { makeNamespace } from "./apply.ts";
import { ARKTOS_PODS, arktosPods } from "./vpc-manifests.ts";
import { type VpcPodReport, type VpcReport, WAITING_REASONS } from "./vpc-report.ts";

const VPC = "vpc-1a2b3c4d";
const SUBNET = { name: "subnet-1", cidr: "192.168.0.0/24" } as const;
const ADDRESS = "192.168.0.12";
/** Pods without a wish get addresses of these, so that nobody else has {@link ADDRESS}. */
const ALLOCATION = { allocation_pools: [{ start: "192.168.0.32", end: "192.168.0.239" }] };
/** Any pool of the default scenario; its namespaces need one, and these pods take nothing from it. */
const POOL = "default";
const OWNER = encodeURIComponent("compute:isthmus");
/** The time limit for pods and for Neutron, in milliseconds. */
const DEADLINE_MS = 90_000;
const LOOK_MS = 100;
/** Time in which no echo may come through a closed group, in milliseconds. */
const CLOSED_MS = 2000;
/** Attributes of the user's port that a pod changes for a while. */
const KEPT = ["name", "description", "device_id", "device_owner", "binding:host_id"] as const;

interface Test {
  readonly api: KubeApi;
  readonly neutron: NeutronApi;
  readonly at: LabVpc;
  readonly options: AbortOptions & { readonly signal: AbortSignal };
}

/** A pod of the test. */
interface Started {
  readonly name: string;
  readonly uid: string;
  readonly node: string;
  readonly startedMs: number;
}

/**
 * Makes a network, a port and a group as a cloud's user does, and the five pods of Arktos' design. Failures are in the report. Rejects with
 * `KubeError`, `KernelError`, `NeutronBedError`, {@link LabError}, and the signal's reason.
 */
export async function verifyVpc(
  {
    api,
    identity,
    at,
    say,
  }: {
    readonly api: KubeApi;
    readonly identity: LabIdentity;
    readonly at: LabVpc;
    readonly say: (text: string) => void;
  },
  options: AbortOptions & { readonly signal: AbortSignal },
): Promise<VpcReport> {
  const startedMs = performance.now();
  const neutron = new NeutronApi(new URL(at.neutron));
  const test: Test = { api, neutron, at, options };
  say("making a network, a port and a security group in Neutron");
  const network = await neutron.makeNetwork({ name: VPC }, [SUBNET.cidr], ALLOCATION);
  const userPort = await neutron.make("port", { network_id: network.id, name: "mine", description: "a user's port" });
  const group = await neutron.make("security_group", { name: "guarded" });
  const flavors = { [at.flavor.name]: { maxNics: at.flavor.maxNics } };
  const policy = {
    metadata: { name: "default" },
    spec: { flavors, vpcBindings: [{ vpc: VPC, projectID: network.projectId, namespaces: [at.namespace] }] },
  };
  await createOwn(api, identity, nicResources.nicPolicies, policy, options);
  await makeNamespace(api, identity, { name: at.namespace, pool: `${identity.prefix}${POOL}` }, options);
  const drafts = podDrafts({ portId: userPort.id, securityGroup: group.id });
  const start = (name: (typeof ARKTOS_PODS)[number]): Promise<Started> => startPod(test, identity, drafts, name);
  say("starting the pods of Arktos' design");
  const first = await Promise.all(ARKTOS_PODS.slice(0, 4).map(start));
  const pods = await Promise.all(first.map((pod) => untilReady(test, pod)));
  const sources = await Promise.all(first.map((pod) => pingSource(test, pod)));
  const pings = await pingMesh(sources, [], { ...options, deadlineMs: 10_000 });
  say("a pod waits for an address and a port of others");
  const pod5 = await start("pod5");
  const waiting = await untilReasons(test, pod5);
  for (const name of ["pod3", "pod4"]) await deletePod(test, name);
  const healed = await untilReady(test, { ...pod5, startedMs: performance.now() });
  say("opening a security group");
  const groupReport = await openGroup(test, { from: sources[0], to: healed.nics[0]?.address ?? "", group: group.id });
  for (const name of ["pod1", "pod2", "pod5"]) await deletePod(test, name);
  const left = await whatIsLeft(test, userPort);
  return {
    hosts: at.hosts,
    startSeconds: at.startSeconds,
    pods,
    pings,
    waiting,
    healed,
    group: groupReport,
    left,
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(2)),
  };
}

/** Pure: the pods as Kubernetes takes them, by name. */
function podDrafts(ids: { readonly portId: string; readonly securityGroup: string }): ReadonlyMap<string, Draft<Pod>> {
  const text = arktosPods({ vpc: VPC, subnet: SUBNET.name, ip: ADDRESS, ...ids });
  const converted = convertManifests(text, { to: "kubernetes", output: "yaml", vmRuntime: { kind: "none" } });
  if (!converted.ok) throw new Error(`the lab's own manifests are faulty: ${JSON.stringify(converted.faults)}`);
  const pods = parseYamlStream(converted.text).map((document) => {
    if (document instanceof YamlError) throw document;
    return document.value as Draft<Pod>;
  });
  return new Map(pods.map((pod) => [String(pod.metadata.name), pod]));
}

async function startPod(
  { api, at, options }: Test,
  identity: LabIdentity,
  drafts: ReadonlyMap<string, Draft<Pod>>,
  name: (typeof ARKTOS_PODS)[number],
): Promise<Started> {
  const draft = drafts.get(name);
  if (draft === undefined) throw new Error(`the lab has no manifest of ${name}`);
  const index = ARKTOS_PODS.indexOf(name);
  const node = at.hosts[index % at.hosts.length]?.node ?? "";
  const startedMs = performance.now();
  const metadata = { ...draft.metadata, namespace: at.namespace };
  // Its grace period would only be waited for: the process of a lab's pod does nothing.
  const spec = { ...draft.spec, nodeName: node, terminationGracePeriodSeconds: 0 } as Draft<Pod>["spec"];
  const pod = await createOwn(api, identity, resources.pods, { ...draft, metadata, spec } as Draft<Pod>, options);
  return { name, uid: pod.metadata.uid, node, startedMs };
}

/** Waits until the pod runs and its claim is active; its report in any case. */
async function untilReady(test: Test, pod: Started): Promise<VpcPodReport> {
  const { api, at, options } = test;
  const look = async (): Promise<boolean> => {
    const found = await findObject(api, resources.pods, { name: pod.name, namespace: at.namespace }, options);
    const claim = await claimOf(test, pod);
    return found?.status?.phase === "Running" && claim?.status?.phase === "Active";
  };
  const isReady = await waitUntil(look, DEADLINE_MS, options.signal);
  const seconds = Number(((performance.now() - pod.startedMs) / 1000).toFixed(2));
  return reportOf(test, pod, isReady ? seconds : null);
}

/** Waits until every NIC of the pod has a reason. */
async function untilReasons(test: Test, pod: Started): Promise<VpcPodReport> {
  const look = async (): Promise<boolean> => {
    const nics = (await claimOf(test, pod))?.status?.nics ?? [];
    return nics.length === WAITING_REASONS.length && nics.every(({ reason }) => reason !== undefined);
  };
  await waitUntil(look, DEADLINE_MS, test.options.signal);
  return reportOf(test, pod, null);
}

async function reportOf(test: Test, pod: Started, seconds: number | null): Promise<VpcPodReport> {
  const nics = (await claimOf(test, pod))?.status?.nics ?? [];
  const firewall = test.at.hosts.find(({ node }) => node === pod.node)?.firewall;
  return {
    name: pod.name,
    node: pod.node,
    plug: firewall === "iptables_hybrid" ? "hybrid" : "direct",
    nics: nics.map(({ name, portID, ips, mac, state, reason, message }) => ({
      name,
      port: portID ?? "",
      address: ips?.[0]?.ip ?? "",
      mac: mac ?? "",
      state: state ?? "",
      ...(reason === undefined ? {} : { reason }),
      ...(message === undefined ? {} : { message }),
    })),
    seconds,
  };
}

function claimOf({ api, at, options }: Test, { uid }: Pick<Started, "uid">): Promise<NicClaim | undefined> {
  return findObject(api, nicResources.nicClaims, { name: uid, namespace: at.namespace }, options);
}

async function pingSource(test: Test, pod: Started): Promise<PingSource> {
  const found = await findObject(
    test.api,
    resources.pods,
    { name: pod.name, namespace: test.at.namespace },
    test.options,
  );
  const netns = found?.metadata.annotations?.[NETNS_ANNOTATION];
  const nics = (await claimOf(test, pod))?.status?.nics ?? [];
  if (netns === undefined)
    throw new LabError("not-reached", `pod ${pod.name} does not run: ${found?.status?.message ?? "see its NicClaim"}`);
  const addresses = nics.flatMap(({ ips = [] }) => ips.map(({ ip }) => IpAddress.parse(ip)));
  return { name: pod.name, netns, addresses };
}

/** Tries the address while the group has no rule, gives it one, and tries again. */
async function openGroup(
  { neutron, options }: Test,
  { from, to, group }: { readonly from: PingSource | undefined; readonly to: string; readonly group: string },
): Promise<VpcReport["group"]> {
  if (from === undefined || to === "") return { dropped: false, openSeconds: null };
  const target = { name: "pod5", addresses: [IpAddress.parse(to)] };
  const echo = async (deadlineMs: number): Promise<boolean> =>
    (await pingMesh([from], [target], { ...options, deadlineMs })).answered > 0;
  const dropped = !(await echo(CLOSED_MS));
  const rule = { security_group_id: group, direction: "ingress", protocol: "icmp" };
  const openedMs = performance.now();
  await neutron.make("security_group_rule", rule);
  const isOpen = await waitUntil(() => echo(1000), DEADLINE_MS, options.signal);
  return { dropped, openSeconds: isOpen ? Number(((performance.now() - openedMs) / 1000).toFixed(2)) : null };
}

async function deletePod({ api, at, options }: Test, name: string): Promise<void> {
  await api.delete(resources.pods, { name, namespace: at.namespace }, options);
}

/** Waits until the lab has no ports, and compares the user's port with what it was. */
async function whatIsLeft({ neutron, options }: Test, before: NeutronObject): Promise<VpcReport["left"]> {
  const ports = (): Promise<readonly NeutronObject[]> => neutron.list(`ports?device_owner=${OWNER}`);
  await waitUntil(async () => (await ports()).length === 0, DEADLINE_MS, options.signal);
  const [now] = await neutron.list(`ports?id=${String(before["id"])}`);
  const changed = KEPT.filter((key) => now?.[key] !== before[key]);
  return {
    ports: (await ports()).map(({ name }) => String(name)),
    userPort:
      now === undefined
        ? null
        : changed.map((key) => `has ${key} ${JSON.stringify(now[key])}, not ${JSON.stringify(before[key])}`),
  };
}

function waitUntil(look: () => Promise<boolean>, deadlineMs: number, signal: AbortSignal): Promise<boolean> {
  return poll(look, { until: (is) => is, everyMs: LOOK_MS, deadlineMs, signal, clock: systemClock });
}
