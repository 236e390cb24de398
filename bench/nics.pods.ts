import { execFile, execFileSync } from "node:child_process";
import { promisify } from "node:util";
import { sleep } from "#base/async";
import { CniCallError } from "#lab/kubelet";
import type { LiveBed, LivePod } from "#test/live-neutron";
import { nicOf } from "#test/nic-cluster";

/** The node whose pods are plugged directly. */
const NODE = "node1";
const LOOK_MS = 100;
/** CNI specification, well-known error codes: try again later. */
const TRY_AGAIN = 11;
const MAX_CALLS = 5;

/** ADDs of bound ports, one after the other, in milliseconds: from the call of the executable until its port is active and it ends. */
export async function measureAdds(bed: LiveBed, count: number): Promise<readonly number[]> {
  const times: number[] = [];
  for (let at = 0; at < count; at += 1) {
    const pod = await bed.make(`add-${at}`, NODE);
    await bed.nics.untilClaim(pod.uid, ({ status }) => status?.phase === "Plumbable");
    const startedMs = performance.now();
    await bed.cni("ADD", pod);
    times.push(performance.now() - startedMs);
    await bed.end(pod);
  }
  return times;
}

/** Pods with one NIC, all at once. */
export interface Burst {
  /** From the creation of the first pod until the ADD of the last one has ended. */
  readonly ms: number;
  /** Requests to Neutron for each pod, from its creation until its port is active. */
  readonly requestsPerPod: number;
}

/** Makes pods at once, and calls ADD for each as soon as it is there. Their sandboxes are made before. */
export async function measureBurst(bed: LiveBed, count: number): Promise<Burst> {
  const names = Array.from({ length: count }, (_, at) => `burst-${at}`);
  const sandboxes = names.map((name) => bed.sandbox({ name, uid: "", node: NODE }));
  const before = await requestsOf(bed);
  const startedMs = performance.now();
  const pods = await Promise.all(
    sandboxes.map(async (sandbox): Promise<LivePod> => {
      const pod = { ...sandbox, uid: await bed.nics.pod(sandbox.name, { node: NODE }) };
      await addUntilActive(bed, pod);
      return pod;
    }),
  );
  const ms = performance.now() - startedMs;
  const requestsPerPod = ((await requestsOf(bed)) - before) / count;
  for (const pod of pods)
    if (nicOf(await bed.claim(pod)).state !== "Ready") throw new Error(`${pod.name} is not ready`);
  for (let at = 0; at < pods.length; at += 10) await Promise.all(pods.slice(at, at + 10).map((pod) => bed.end(pod)));
  return { ms, requestsPerPod };
}

/** Calls ADD, and again when it says that the port is not active yet, as a kubelet does. */
async function addUntilActive(bed: LiveBed, pod: LivePod): Promise<void> {
  for (let calls = 1; ; calls += 1) {
    try {
      await bed.cni("ADD", pod, { plumbTimeoutMs: 40_000, activeTimeoutMs: 19_000 });
      return;
    } catch (error) {
      if (!(error instanceof CniCallError) || error.cniCode !== TRY_AGAIN || calls === MAX_CALLS) throw error;
    }
  }
}

/** The same by hand, as quickly as commands can: one request for all ports, one run of `ip`, and one of `ovs-vsctl`. Milliseconds. */
export async function measureByHand(bed: LiveBed, count: number): Promise<number> {
  const [network] = await bed.neutron.list("networks?name=vpc-1");
  const sandboxes = Array.from({ length: count }, () => bed.sandbox({ name: "by-hand", uid: "", node: NODE }));
  const { netns } = bed.node(NODE);
  const startedMs = performance.now();
  const drafts = sandboxes.map((_, at) => ({
    network_id: network?.["id"],
    name: `by-hand-${at}`,
    device_id: `by-hand-${at}`,
    device_owner: "compute:hand",
    "binding:host_id": NODE,
  }));
  const answer = await bed.neutron.request("POST", "ports", { ports: drafts });
  const ports = (answer["ports"] ?? []) as unknown as readonly {
    readonly id: string;
    readonly mac_address: string;
    readonly fixed_ips: readonly { readonly ip_address: string }[];
  }[];
  const host: string[] = [];
  const plug: string[] = [];
  for (const [at, { id, mac_address: mac }] of ports.entries()) {
    const device = `tap${id.slice(0, 11)}`;
    const sandbox = sandboxes[at]?.netns ?? "";
    host.push(`link add ${device} mtu 1450 type veth peer name eth0 mtu 1450 address ${mac} netns ${sandbox}`);
    host.push(`link set ${device} up`);
    const ids = `external_ids:iface-id=${id} external_ids:iface-status=active external_ids:attached-mac="${mac}"`;
    plug.push("--", "add-port", "br-int", device, "--", "set", "Interface", device, ...ids.split(" "));
  }
  execFileSync("ip", ["-n", netns, "-batch", "-"], { input: host.join("\n") });
  for (const [at, port] of ports.entries()) {
    const inside = [`address add ${port.fixed_ips[0]?.ip_address}/24 dev eth0`, "link set eth0 up"];
    execFileSync("ip", ["-n", sandboxes[at]?.netns ?? "", "-batch", "-"], { input: inside.join("\n") });
  }
  bed.cloud.ovs(NODE).vsctl(...plug.slice(1));
  const query = `ports?device_owner=compute:hand&fields=status`;
  for (;;) {
    const found = await bed.neutron.list(query);
    if (found.length === count && found.every(({ status }) => status === "ACTIVE")) break;
    await sleep(LOOK_MS);
  }
  const ms = performance.now() - startedMs;
  const devices = ports.map(({ id }) => `tap${id.slice(0, 11)}`);
  bed.cloud.ovs(NODE).vsctl(...devices.flatMap((device) => ["--", "del-port", "br-int", device]).slice(1));
  execFileSync("ip", ["-n", netns, "-batch", "-"], { input: devices.map((name) => `link delete ${name}`).join("\n") });
  for (const { id } of ports) await bed.neutron.request("DELETE", `ports/${id}`);
  for (const sandbox of sandboxes) execFileSync("ip", ["netns", "delete", sandbox.netns]);
  return ms;
}

/** Requests to Neutron that the lab's controller has sent, by its metrics, which are served in the lab's fabric. */
async function requestsOf({ lab }: LiveBed): Promise<number> {
  const argv = ["netns", "exec", `isthmus-${lab}-fabric`, "curl", "-fsS", "http://127.0.0.1:9406/metrics"];
  const { stdout } = await promisify(execFile)("ip", argv);
  return [...stdout.matchAll(/^vpc_api_requests_total\{.*\} (\d+)$/gm)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
}
