/**
 * A node for NICs of VPCs: a network namespace with Open vSwitch and the shipped `nic-agent`, the embedded API server, and a stand-in for the
 * controller that writes claims. Needs root, a build and Debian's openvswitch-switch.
 *
 * Owns: all of these, removed when it is disposed. Does not know: Neutron; the stand-in decides when a port is bound and active.
 *
 * ```ts
 * await using node = await NicNode.open("mine");
 * const pod = await node.createClaim("web", [nicState(1)]);
 * await node.cni("ADD", { pod, sandbox: node.makeSandbox("web") });
 * ```
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { isAbortError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { listenTcp } from "#kernel/socket";
import { isKubeError, KubeClient, loadKubeConfig } from "#kube/client";
import { type NicClaim, type NicClaimStatus, type NicStatus, nicCrds, nicResources } from "#kube/nic";
import { type ApiServer, type SeedObject, startApiServer } from "#lab/api-server";
import { ISTHMUS, type Outcome, type Running, start, until } from "#test/lab";
import { OvsBed } from "#test/ovs-bed";

const { nicClaims } = nicResources;
/** The node's name in the API, and at the provider. */
export const NODE = "nic-node";
const MANAGER = "nic-controller";
const RIGHTS = ["agent.yaml", "agent-policy.yaml"].map((name) => join(import.meta.dirname, "../../deploy/nics", name));

/** A pod with a claim. */
export interface ClaimedPod {
  readonly name: string;
  readonly uid: string;
}

/** A sandbox: its namespace's name and path, and the container's id. */
export interface Sandbox {
  readonly netns: string;
  readonly path: string;
  readonly containerId: string;
}

/** Options of a call of a CNI executable. */
export interface NicCniCall {
  readonly sandbox: Sandbox;
  readonly pod?: ClaimedPod | undefined;
  readonly plugin?: "vpc-neutron" | "vpc-alcor";
  /** Keys of the configuration. */
  readonly config?: object;
  /** Further pairs of CNI_ARGS. */
  readonly args?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A result of ADD, or an error, as the executable has printed it. */
export interface Printed {
  readonly exit: number | null;
  readonly code?: number;
  readonly msg?: string;
  readonly interfaces?: readonly { readonly name: string; readonly mac?: string; readonly sandbox?: string }[];
  readonly ips?: readonly { readonly address: string; readonly gateway?: string; readonly interface?: number }[];
  readonly dns?: { readonly nameservers?: readonly string[] };
  readonly routes?: readonly object[];
}

/** The state of a bound NIC `eth<index>` with the address 10.<net>.0.<last>/24. */
export function nicState(
  portNumber: number,
  init: Partial<NicStatus> & { readonly net?: number; readonly last?: number } = {},
): NicStatus {
  const { net = 0, last = portNumber, ...rest } = init;
  const id = portNumber.toString(16).padStart(8, "0");
  return {
    name: "eth0",
    portID: `${id}-1111-4111-8111-111111111111`,
    state: "InProgress",
    mac: `fa:16:3e:00:00:${portNumber.toString(16).padStart(2, "0")}`,
    mtu: 1450,
    ips: [{ ip: `10.${net}.0.${last}`, prefixLength: 24, gateway: `10.${net}.0.254` }],
    host: NODE,
    vifType: "ovs",
    vifDetails: { ovsHybridPlug: true, bridgeName: "br-int", datapathType: "netdev", portFilter: true },
    ...rest,
  };
}

/** Users of TAP devices that the agent lets a configuration name. */
export const VM_OWNERS = [71_077, 60_107] as const;

/** Disposing ends the programs and removes everything. */
export class NicNode implements AsyncDisposable {
  readonly netns: string;
  readonly folder: string;
  readonly server: ApiServer;
  readonly api: KubeClient;
  readonly ovs: OvsBed;
  readonly socket: string;
  readonly stateDir: string;
  readonly #running: Running[] = [];
  readonly #sandboxes: string[] = [];
  readonly #ending = new AbortController();
  #agent: Running | undefined;
  #controller: Promise<void> | undefined;
  #serial = 0;
  /** Pods whose ports stay inactive. */
  readonly inactive = new Set<string>();

  private constructor(init: Pick<NicNode, "netns" | "folder" | "server" | "api" | "ovs">) {
    this.netns = init.netns;
    this.folder = init.folder;
    this.server = init.server;
    this.api = init.api;
    this.ovs = init.ovs;
    this.socket = join(init.folder, "vpc.sock");
    this.stateDir = join(init.folder, "state");
  }

  /** Resolves when the agent serves. */
  static async open(name: string): Promise<NicNode> {
    const folder = mkdtempSync(join(tmpdir(), `isthmus-${name}-`));
    const netns = `isthmus-${name}-${process.pid}`;
    using inside = openKernel().createNetNs(netns);
    execFileSync("ip", ["-n", netns, "link", "set", "lo", "up"]);
    const fd = listenTcp(IpAddress.parse("127.0.0.1"), 6443, { netns: inside });
    const tokens = {
      admin: { name: "admin", groups: ["system:masters"] },
      agent: {
        name: "system:serviceaccount:kube-system:nic-agent",
        groups: ["system:authenticated"],
        extra: { "authentication.kubernetes.io/node-name": [NODE] },
      },
    };
    const server = await startApiServer({
      tokens,
      listen: [
        { host: "127.0.0.1", port: 0 },
        { fd, host: "127.0.0.1" },
      ],
      log: nullLogger,
      clock: systemClock,
    });
    const [here = "", inNode = ""] = server.urls;
    const own = join(folder, "own-kubeconfig");
    writeFileSync(own, server.kubeconfig({ server: here, token: "admin" }));
    writeFileSync(join(folder, "kubeconfig"), server.kubeconfig({ server: inNode, token: "agent" }));
    writeFileSync(join(folder, "away-kubeconfig"), server.kubeconfig({ server: "http://127.0.0.1:9" }));
    server.seed(nicCrds as unknown as readonly SeedObject[]);
    // The agent has these rights and no others.
    for (const path of RIGHTS) {
      server.seed(parseAllDocuments(readFileSync(path, "utf8")).map((one) => one.toJS() as SeedObject));
    }
    await server.settled();
    const api = new KubeClient(await loadKubeConfig({ path: own, clock: systemClock }), { clock: systemClock });
    const ovs = await OvsBed.open({ netns }).catch(async (error: unknown) => {
      // A server that is left would keep the process of the tests alive.
      await api.close();
      await server[Symbol.asyncDispose]();
      throw error;
    });
    const node = new NicNode({ netns, folder, server, api, ovs });
    try {
      await node.startAgent();
      return node;
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts the agent; `isAway`: it reaches no API server. Resolves when it serves. */
  async startAgent({ isAway = false } = {}): Promise<void> {
    const kubeconfig = join(this.folder, isAway ? "away-kubeconfig" : "kubeconfig");
    const flags = [
      `--kubeconfig=${kubeconfig}`,
      `--socket=${this.socket}`,
      `--state-dir=${this.stateDir}`,
      `--ovsdb=${this.ovs.socketPath}`,
      ...VM_OWNERS.map((uid) => `--allow-configuration=vmOwnerUid=${uid}`),
    ];
    const agent = start(this.inside(ISTHMUS, "nic-agent", ...flags), {
      env: { COIL_NODE_NAME: NODE },
      timeoutMs: 600_000,
    });
    this.#running.push(agent);
    await until("the agent serves", () => agent.said().includes('"serving"'), { seen: agent.said });
    this.#agent = agent;
  }

  /** `kill -9`; resolves when it has ended. */
  async killAgent(): Promise<void> {
    this.#agent?.child.kill("SIGKILL");
    await this.#agent?.ended;
  }

  /** Returns the readiness of the agent; a test can pass it on. */
  readonly readyz = (): string =>
    execFileSync("nsenter", [...this.inside("curl", "-s", "http://127.0.0.1:9395/readyz").slice(1)], {
      encoding: "utf8",
    });

  /** Returns the logs of all agents. */
  said(): string {
    return this.#running.map((one) => one.said()).join("");
  }

  /** From now on every port whose NICs are plugged becomes active. */
  activatePlugged(): void {
    this.#controller ??= this.#activate();
  }

  async #activate(): Promise<void> {
    const { signal } = this.#ending;
    try {
      for await (const event of this.api.watch(nicClaims, { signal })) {
        if (event.type !== "ADDED" && event.type !== "MODIFIED") continue;
        const { status, metadata } = event.object;
        const isPlugged = status?.conditions?.some((one) => one.type === "Plugged" && one.status === "True");
        const nics = status?.nics ?? [];
        if (isPlugged !== true || this.inactive.has(metadata.name) || nics.every(({ state }) => state === "Ready"))
          continue;
        await this.setNics(
          metadata.name,
          nics.map((nic) => ({ ...nic, state: "Ready" as const })),
          "Active",
        );
      }
    } catch (error) {
      if (!isAbortError(error) && !(isKubeError(error) && signal.aborted)) throw error;
    }
  }

  /** The uid of the pod of the next claim. */
  nextUid(): string {
    return `0a64ecb8-6f54-4d0f-9e42-${String(this.#serial + 1).padStart(12, "0")}`;
  }

  /** Makes the claim of a pod as the controller does; without `nics` nothing is bound yet. */
  async createClaim(
    name: string,
    nics?: readonly NicStatus[],
    spec: Partial<NicClaim["spec"]> = {},
  ): Promise<ClaimedPod> {
    const uid = this.nextUid();
    this.#serial += 1;
    const names = nics ?? [{ name: "eth0" }];
    await this.api.create(nicClaims, {
      metadata: { name: uid, namespace: "default", labels: { "isthmus.dev/pod": name, "isthmus.dev/node": NODE } },
      spec: {
        podName: name,
        podUID: uid,
        vpc: "vpc-1",
        provider: "neutron",
        nics: names.map((nic) => ({ name: nic.name })),
        ...spec,
      },
    });
    if (nics !== undefined) await this.setNics(uid, nics);
    return { name, uid };
  }

  /** Writes the state of all NICs of a claim. */
  async setNics(
    uid: string,
    nics: readonly NicStatus[],
    phase: NonNullable<NicClaimStatus["phase"]> = "Plumbable",
  ): Promise<void> {
    const body = {
      apiVersion: "isthmus.dev/v1alpha1",
      kind: "NicClaim",
      metadata: { name: uid },
      status: { phase, nodeName: NODE, nics },
    };
    await this.api.patch(
      nicClaims,
      { namespace: "default", name: uid },
      { type: "apply", fieldManager: MANAGER, force: true, body },
      { subresource: "status" },
    );
  }

  /** Waits until the agent has a claim with this text on its disk. */
  async agentKnows(uid: string, text: string): Promise<void> {
    const path = join(this.stateDir, "claims", `${uid}.json`);
    await until(`the agent knows ${text}`, () => existsSync(path) && readFileSync(path, "utf8").includes(text));
  }

  /** The true conditions of a claim, sorted. */
  async conditions(uid: string): Promise<string[]> {
    const { status } = await this.api.get(nicClaims, { namespace: "default", name: uid });
    return (status?.conditions ?? [])
      .filter((one) => one.status === "True")
      .map(({ type, reason }) => `${type}:${reason}`)
      .sort();
  }

  /** Makes a namespace for a pod. */
  makeSandbox(name: string): Sandbox {
    this.#serial += 1;
    const netns = `${this.netns}-${name}`;
    execFileSync("ip", ["netns", "add", netns]);
    this.#sandboxes.push(netns);
    return { netns, path: `/run/netns/${netns}`, containerId: `c${this.#serial}${name}`.padEnd(64, "0") };
  }

  removeSandbox({ netns }: Pick<Sandbox, "netns">): void {
    execFileSync("ip", ["netns", "delete", netns]);
    this.#sandboxes.splice(this.#sandboxes.indexOf(netns), 1);
  }

  /** Runs a CNI executable on the node. */
  async cni(command: "ADD" | "DEL" | "CHECK", call: NicCniCall): Promise<Printed> {
    const { sandbox, pod, plugin = "vpc-neutron", config = {}, args = "", env = {} } = call;
    const ofPod =
      pod === undefined
        ? []
        : ["IgnoreUnknown=1", "K8S_POD_NAMESPACE=default", `K8S_POD_NAME=${pod.name}`, `K8S_POD_UID=${pod.uid}`];
    const network = { cniVersion: "1.0.0", name: "vpc", type: plugin, socket: this.socket, ...config };
    const outcome: Outcome = await start(this.inside(join(ISTHMUS, "../cni", plugin)), {
      env: {
        CNI_COMMAND: command,
        CNI_CONTAINERID: sandbox.containerId,
        CNI_NETNS: sandbox.path,
        CNI_IFNAME: "eth0",
        CNI_PATH: "/opt/cni/bin",
        CNI_ARGS: [...ofPod, ...(args === "" ? [] : [args])].join(";"),
        ...env,
      },
      input: new TextEncoder().encode(JSON.stringify(network)),
    }).ended;
    if (outcome.stderr !== "") throw new Error(`${plugin} has written to standard error: ${outcome.stderr}`);
    return {
      exit: outcome.code,
      ...(outcome.stdout === "" ? {} : (JSON.parse(outcome.stdout) as Omit<Printed, "exit">)),
    };
  }

  /** The command line that runs a command on the node. */
  inside(...command: readonly string[]): string[] {
    return ["nsenter", `--net=/run/netns/${this.netns}`, ...command];
  }

  /** The output of `ip` in a namespace, by default the node's. */
  ip(args: readonly string[], { netns }: { readonly netns: string } = this): string {
    return execFileSync("ip", ["-n", netns, ...args], { encoding: "utf8" });
  }

  /** The node's devices of NICs. */
  devices(): string[] {
    return [...this.ip(["-o", "link", "show"]).matchAll(/^\d+: ([^:@]+)/gm)]
      .map(([, name = ""]) => name)
      .filter((name) => /^(qbr|qvb|qvo|tap)/.test(name))
      .sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort();
    await this.#controller;
    for (const one of this.#running) one.child.kill("SIGKILL");
    await Promise.all(this.#running.map((one) => one.ended));
    await this.ovs[Symbol.asyncDispose]();
    await this.api.close();
    await this.server[Symbol.asyncDispose]();
    for (const name of [...this.#sandboxes, this.netns]) openKernel().deleteNetNs(name);
    rmSync(this.folder, { recursive: true, force: true });
  }
}
