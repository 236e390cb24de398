import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Kernel } from "#kernel/net";
import { inNetNs, type NetNs } from "#kernel/netns";
import type { CniRunner } from "./cni-exec.ts";
import type { ExecPlace } from "./exec/index.ts";

/** The pod of a sandbox. */
export interface SandboxPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly annotations: Readonly<Record<string, string>>;
  /** The command of its process; `undefined`: the process only waits. */
  readonly command: readonly string[] | undefined;
  /** The environment of its processes, when the pod has these addresses. */
  readonly envOf: (ips: readonly string[]) => Readonly<Record<string, string>>;
}

const IFNAME = "eth0";
const PAUSE = ["/bin/sleep", "infinity"];

/** One pod on its node: a namespace, its attachment, its process. Methods are called one after the other. */
export class Sandbox {
  readonly id: string;
  readonly netnsName: string;
  readonly #kernel: Kernel;
  readonly #cni: CniRunner;
  readonly #pod: SandboxPod;
  readonly #log: Logger;
  readonly #clock: Clock;
  #netns: NetNs | undefined;
  #env: Readonly<Record<string, string>> = {};
  #process: ChildProcess | undefined;

  constructor(
    deps: { readonly kernel: Kernel; readonly cni: CniRunner; readonly log: Logger; readonly clock: Clock },
    options: { readonly id: string; readonly netnsName: string; readonly pod: SandboxPod },
  ) {
    this.id = options.id;
    this.netnsName = options.netnsName;
    this.#kernel = deps.kernel;
    this.#cni = deps.cni;
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#pod = options.pod;
  }

  get netnsPath(): string {
    return `/run/netns/${this.netnsName}`;
  }

  /** Makes and attaches the namespace. Returns the pod's addresses without prefix lengths. Rejects with `CniCallError`. */
  async attach(): Promise<string[]> {
    this.#netns = this.#kernel.createNetNs(this.netnsName);
    using stack = this.#kernel.openStack(this.#netns);
    const loopback = stack.links.get({ name: "lo" });
    if (loopback !== undefined) stack.links.set(loopback.index, { up: true });
    const result = await this.#cni({ command: "ADD", ...this.#call() });
    const ips = (result?.["ips"] ?? []) as readonly { readonly address: string }[];
    const addresses = ips.map(({ address }) => address.split("/")[0] ?? "");
    this.#env = this.#pod.envOf(addresses);
    return addresses;
  }

  /** The namespace and environment for further commands; `undefined` before it is attached. */
  get place(): ExecPlace | undefined {
    return this.#netns === undefined ? undefined : { netns: this.#netns, env: this.#env };
  }

  /** Starts the pod's process in its namespace. */
  start(onExit: (code: number | null) => void): void {
    const netns = this.#netns;
    if (netns === undefined) throw new Error(`sandbox ${this.id} has no network namespace`);
    const [file = "", ...args] = this.#pod.command ?? PAUSE;
    const child = inNetNs(netns, () =>
      spawn(file, args, { stdio: "ignore", env: { PATH: process.env["PATH"] ?? "", ...this.#env } }),
    );
    child.once("error", (error) => {
      this.#log.warn("the pod's process cannot be started", { pod: this.#pod.name, error: error.message });
      onExit(null);
    });
    child.once("exit", (code) => onExit(code));
    this.#process = child;
  }

  /** Sends SIGTERM to the process and waits for its end, at most `graceMs`. */
  async end(graceMs: number): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    const late = Promise.withResolvers<void>();
    const cancel = this.#clock.after(graceMs, late.resolve);
    await Promise.race([ended, late.promise]);
    cancel();
  }

  /** Ends the process, detaches and deletes the namespace. Rejects with `CniCallError`: the caller then tries again. */
  async remove(): Promise<void> {
    await this.#endProcess();
    await this.#cni({ command: "DEL", ...this.#call() });
    this.#netns?.[Symbol.dispose]();
    this.#netns = undefined;
    if (this.#kernel.listNetNs().includes(this.netnsName)) this.#kernel.deleteNetNs(this.netnsName);
  }

  async #endProcess(): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  #call() {
    return {
      containerId: this.id,
      netnsPath: this.netnsPath,
      ifname: IFNAME,
      annotations: this.#pod.annotations,
      args: {
        K8S_POD_NAMESPACE: this.#pod.namespace,
        K8S_POD_NAME: this.#pod.name,
        K8S_POD_UID: this.#pod.uid,
        K8S_POD_INFRA_CONTAINER_ID: this.id,
      },
    };
  }
}
