/** The start of a router that has many clients: the shipped `coil-egress` in a namespace of its own, beside the embedded API server in another process. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Semaphore, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import {
  type CustomResourceDefinition,
  type Draft,
  KubeClient,
  loadKubeConfig,
  type Pod,
  resources,
} from "#kube/client";
import { coilCrds, coilResources, type Egress } from "#kube/coil";
import type { ApiServerMessage } from "./cni-add.api-server.ts";
import { end, makeNode, netnsName, pidOf, removeNamespaces, removeStale, startProgram } from "./cni-add.world.ts";
import { peakMiB } from "./service-sync.measure.ts";

const EGRESS = { namespace: "default", name: "nat" };
const ADDRESSES = ["10.64.0.8", "fd02::8"] as const;
const TABLE = 118;
const START_TIMEOUT_MS = 60_000;

/** A router's start. */
export interface RouterStart {
  /** From the start of the process until the kernel has a route to each address of the clients. */
  readonly ms: number;
  readonly peakMiB: number;
  /** Links beside loopback and eth0. */
  readonly links: number;
}

/** Starts a router with this number of clients of both families, `rounds` times in new namespaces. */
export async function measureRouter(
  { clients, rounds }: { readonly clients: number; readonly rounds: number },
  { signal }: { readonly signal: AbortSignal },
): Promise<RouterStart[]> {
  await using undo = new AsyncDisposableStack();
  removeStale();
  const dir = mkdtempSync(join(tmpdir(), "isthmus-bench-egress-"));
  undo.defer(() => rmSync(dir, { recursive: true, force: true }));
  const name = netnsName("router");
  undo.defer(() => removeNamespaces(netnsName("")));
  makeRouter(name);
  const server = fork(join(import.meta.dirname, "cni-add.api-server.ts"), [name], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
    execArgv: [],
    detached: true,
  });
  undo.defer(() => end(server));
  const [configs] = (await once(server, "message", { signal })) as [ApiServerMessage];
  const [here, inside] = [join(dir, "kubeconfig"), join(dir, "kubeconfig.router")];
  writeFileSync(here, configs.here, { mode: 0o600 });
  writeFileSync(inside, configs.inNode, { mode: 0o600 });
  const api = undo.use(
    new KubeClient(await loadKubeConfig({ path: here, clock: systemClock }), {
      userAgent: "bench",
      clock: systemClock,
    }),
  );
  await makeEgress(api, signal);
  await makeClients(api, clients, signal);
  const starts: RouterStart[] = [];
  for (let round = 0; round < rounds; round += 1)
    starts.push(await startRouter(name, { dir, inside, clients, signal }));
  return starts;
}

/** A namespace with the interface of a pod. */
function makeRouter(name: string): void {
  makeNode(name, []);
  const kernel = openKernel();
  using netns = kernel.openNetNs({ name });
  using stack = kernel.openStack(netns);
  stack.links.create({ kind: "veth", name: "eth0", up: true, peer: { name: "node", up: true } });
  const { index } = stack.links.get({ name: "eth0" }) ?? missing("eth0");
  for (const text of ADDRESSES) {
    const address = IpAddress.parse(text);
    stack.addresses.add({ linkIndex: index, address, noDad: address.family === 6 });
    stack.routes.add({ dst: Cidr.parse(address.family === 4 ? "0.0.0.0/0" : "::/0"), linkIndex: index });
  }
}

async function makeEgress(api: KubeClient, signal: AbortSignal): Promise<void> {
  for (const crd of coilCrds)
    await api.create(resources.customResourceDefinitions, crd as unknown as Draft<CustomResourceDefinition>, {
      signal,
    });
  const spec = { destinations: ["0.0.0.0/0", "::/0"] };
  await api.create(coilResources.egresses, { metadata: EGRESS, spec } as Draft<Egress>, { signal });
}

async function makeClients(api: KubeClient, clients: number, signal: AbortSignal): Promise<void> {
  const slots = new Semaphore(32);
  const annotations = { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: EGRESS.name };
  const spec = { nodeName: "n", containers: [{ name: "main", image: "none" }] };
  const make = async (at: number): Promise<void> => {
    const metadata = { name: `client-${at}`, namespace: "default", annotations };
    const made = await api.create(resources.pods, { metadata, spec } as Draft<Pod>, { signal });
    const podIPs = [{ ip: `10.72.${at >> 8}.${at & 255}` }, { ip: `fd72::${at.toString(16)}` }];
    await api.replaceStatus(resources.pods, { ...made, status: { phase: "Running", podIPs } }, { signal });
  };
  await Promise.all(Array.from({ length: clients }, (_, at) => slots.run(() => make(at), { signal })));
}

async function startRouter(
  name: string,
  at: { readonly dir: string; readonly inside: string; readonly clients: number; readonly signal: AbortSignal },
): Promise<RouterStart> {
  const kernel = openKernel();
  using netns = kernel.openNetNs({ name });
  using stack = kernel.openStack(netns);
  const ours = () => stack.links.list().filter(({ name: one }) => !["lo", "eth0", "node"].includes(one));
  const count = (): number =>
    ([4, 6] as const).reduce((sum, family) => sum + stack.routes.list({ family, table: TABLE }).length, 0);
  const from = performance.now();
  const child = startProgram(
    name,
    at.dir,
    "coil-egress",
    [`--kubeconfig=${at.inside}`, "--tunnel-driver=vxlan", "--backend=nftables"],
    { COIL_POD_ADDRESSES: ADDRESSES.join(","), COIL_POD_NAMESPACE: EGRESS.namespace, COIL_EGRESS_NAME: EGRESS.name },
  );
  try {
    // The device is made before the routes, and listing ten thousand routes takes the processor from the router.
    while (ours().length === 0 || count() < 2 * at.clients) {
      if (child.exitCode !== null || performance.now() - from > START_TIMEOUT_MS)
        throw new Error(`coil-egress: ${readFileSync(join(at.dir, "coil-egress.log"), "utf8").slice(-2000)}`);
      await sleep(50, { signal: at.signal });
    }
    return { ms: performance.now() - from, peakMiB: peakMiB(pidOf(child)), links: ours().length };
  } finally {
    await end(child);
    for (const { index } of ours()) stack.links.delete(index);
  }
}

function missing(what: string): never {
  throw new Error(`${what} is missing`);
}
