/**
 * A machine with a container runtime, Debian's runc, and a kubelet from the folder that ISTHMUS_PEERS names: a network, mount, UTS and PID
 * namespace, cgroups, a /run of its own, and a disk that outlives all of them.
 *
 * Owns: these, until {@link KubeletNode.shutDown}. Does not know: the control plane, but for its address and bridge.
 *
 * ```ts
 * const node = new KubeletNode({ folder, prefix }, "n1");
 * await node.boot([archive]);
 * ```
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { IpFamily } from "#base/ip";
import { makeCgroups, removeCgroups } from "#test/cgroups";
import type { Runtime } from "#test/kubelet-runtime";
import { start, until } from "#test/lab";
import { peer } from "#test/real-api-server";

/** The folder in which Debian has the CNI plugins. */
export const PLUGINS = "/usr/lib/cni";
export const NODES = ["n1", "n2"] as const;
export type NodeName = (typeof NODES)[number];
/** The addresses of the machines. The API server listens at that of the control plane, port 6443; nodes have it as their default gateway. */
export const ADDRESSES = {
  4: { cp: "172.30.0.1", n1: "172.30.0.11", n2: "172.30.0.12" },
  6: { cp: "fd00:30::1", n1: "fd00:30::11", n2: "fd00:30::12" },
} as const;
/** A machine has the same after a restart. */
const MACS = { n1: "02:00:00:00:00:11", n2: "02:00:00:00:00:12" } as const;
const PREFIX_LENGTHS = { 4: 24, 6: 64 } as const;
/** The control plane's IPv4 address. */
export const CONTROL_PLANE = ADDRESSES[4].cp;

/** The properties that the parts of one cluster share. */
export interface Place {
  /** The folder of all files. */
  readonly folder: string;
  /** The prefix of the names of namespaces and cgroups. */
  readonly prefix: string;
  /** Those of the machines; the first one is the primary one. */
  readonly families: readonly [IpFamily, ...IpFamily[]];
  readonly runtime: Runtime;
}

/** A machine with containerd and a kubelet. */
export class KubeletNode {
  readonly name: NodeName;
  /** Its address of the primary family. */
  readonly address: string;
  readonly #place: Place;
  readonly #folder: string;
  readonly #cgroup: string;
  /** Holds the namespaces: with it all processes of the node end. */
  #holder: ChildProcess | undefined;
  readonly #programs = new Map<string, ChildProcess>();

  constructor(place: Place, name: NodeName) {
    this.name = name;
    this.address = ADDRESSES[place.families[0]][name];
    this.#place = place;
    this.#folder = join(place.folder, name);
    this.#cgroup = `/${place.prefix}-${name}`;
    for (const one of ["opt/cni/bin", "manifests", "etc/isthmus/tunnel"])
      mkdirSync(join(this.#folder, "disk", one), { recursive: true });
    for (const plugin of ["loopback", "portmap"])
      cpSync(join(PLUGINS, plugin), join(this.#folder, "disk/opt/cni/bin", plugin));
    const { runtime } = place;
    const files = {
      ...runtime.files(this.#folder),
      "kubelet.yaml": kubeletConfig(runtime, this.#cgroup, join(this.#folder, "disk/manifests")),
      "boot.sh": bootScript(runtime),
    };
    for (const [file, text] of Object.entries(files)) writeFileSync(join(this.#folder, file), text, { mode: 0o755 });
  }

  /** Puts a file on its disk: `manifests/…` for static pods, `etc/isthmus/tunnel/…`, readable for all, and `boot`, a script that runs before the kubelet starts. */
  put(path: string, text: string): void {
    writeFileSync(join(this.#folder, "disk", path), text);
  }

  /** Its addresses of all families. */
  get addresses(): readonly string[] {
    return this.#place.families.map((family) => ADDRESSES[family][this.name]);
  }

  /** Starts the machine, its runtime, which gets these images, and its kubelet. */
  async boot(images: readonly string[] = []): Promise<void> {
    const netns = addNetns(this.#place, this.name);
    ip(this.#place, "cp", `link add ${this.name} type veth peer name eth0 address ${MACS[this.name]} netns ${netns}`);
    ip(this.#place, "cp", `link set ${this.name} master br0 up`);
    ip(this.#place, this.name, "link set eth0 up");
    addAddresses(this.#place, this.name, "eth0");
    for (const family of this.#place.families)
      ip(this.#place, this.name, `-${family} route add default via ${ADDRESSES[family].cp}`);
    makeCgroups(this.#cgroup);
    const unshare = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"];
    this.#holder = spawnLogged(
      [
        "nsenter",
        `--net=/run/netns/${netns}`,
        ...unshare,
        "sh",
        join(this.#folder, "boot.sh"),
        this.#folder,
        this.name,
      ],
      openSync(join(this.#folder, "log"), "a"),
    );
    await until(`${this.name} is up`, () => existsSync(`/proc/${this.#init()}/root/run/up`), {
      seen: () => this.said(),
    });
    await this.#startRuntime();
    for (const image of images) await this.importImage(image);
    await this.#startKubelet();
  }

  /** The start of a command that runs another one on the node. */
  inside(): readonly string[] {
    return ["nsenter", `--target=${this.#init()}`, "--mount", "--uts", "--pid", "--net"];
  }

  /** The root of its files, as a path that holds until it is shut down. */
  get root(): string {
    return `/proc/${this.#init()}/root`;
  }

  /** Runs a command on the node; what it printed. Throws when its exit code is not 0. */
  async run(...argv: readonly string[]): Promise<string> {
    const env = { PATH: `${this.#place.runtime.programs}:${process.env["PATH"]}` };
    const { code, stdout, stderr } = await start([...this.inside(), ...argv], { env, timeoutMs: 120_000 }).ended;
    if (code !== 0) throw new Error(`${this.name}: ${argv.join(" ")} ended with ${code}: ${stderr}${stdout}`);
    return stdout;
  }

  async importImage(archive: string): Promise<void> {
    await this.run(...this.#place.runtime.importing(this.#folder, archive));
  }

  /** Kills the kubelet and the runtime and starts them again. Containers run on. */
  async restartPrograms(): Promise<void> {
    for (const [name, program] of this.#programs) {
      const pid = readFileSync(join(this.#folder, `${name}.pid`), "utf8").trim();
      const ended = once(program, "exit");
      await this.run("kill", "-KILL", pid);
      await ended;
    }
    await this.#startRuntime();
    await this.#startKubelet();
  }

  /** Ends the machine at once, like a loss of power, and starts it. Only its disk is left. */
  async reboot(): Promise<void> {
    await this.shutDown();
    await this.boot();
  }

  /** Ends all of its processes and removes what the kernel has of it. */
  async shutDown(): Promise<void> {
    if (this.#holder !== undefined) await kill(this.#holder);
    this.#holder = undefined;
    for (const program of this.#programs.values())
      if (program.exitCode === null && program.signalCode === null) await once(program, "exit");
    this.#programs.clear();
    deleteNetns(this.#place, this.name);
    await removeCgroups(this.#cgroup);
    // Of containers, which have no parent of the kubelet's: cgroupsPerQOS is off.
    const tasks = join(this.#folder, "disk/var/lib/containerd/io.containerd.runtime.v2.task/k8s.io");
    if (existsSync(tasks)) for (const id of readdirSync(tasks)) await removeCgroups(`/k8s.io/${id}`);
  }

  /** The end of its logs. */
  said(): string {
    const logs = ["log", `${this.#place.runtime.name}.log`, "kubelet.log"]
      .map((name) => join(this.#folder, name))
      .filter(existsSync);
    return logs.map((log) => readFileSync(log, "utf8").slice(-1500)).join("\n");
  }

  /** The first process of its PID namespace, by the number that it has outside; 0 before it is there. */
  #init(): number {
    const pid = this.#holder?.pid;
    if (pid === undefined) return 0;
    const children = `/proc/${pid}/task/${pid}/children`;
    return existsSync(children) ? Number.parseInt(readFileSync(children, "utf8") || "0", 10) : 0;
  }

  async #startRuntime(): Promise<void> {
    const { name, argv, probe, programs } = this.#place.runtime;
    this.#spawn(name, ...argv(this.#folder));
    const command = ["sh", "-c", `PATH=${programs}:$PATH exec "$@"`, "sh", ...probe];
    const isServing = async (): Promise<boolean> => (await start([...this.inside(), ...command]).ended).code === 0;
    await until(`${name} of ${this.name} serves`, isServing, { everyMs: 300, seen: () => this.said() });
  }

  async #startKubelet(): Promise<void> {
    const argv = [
      peer("kubelet"),
      `--config=${join(this.#folder, "kubelet.yaml")}`,
      `--kubeconfig=${join(this.#place.folder, `${this.name}.kubeconfig`)}`,
      `--node-ip=${this.addresses.join()}`,
      `--hostname-override=${this.name}`,
    ];
    // It answers this from its runtime, once it serves `kubectl logs` and `exec`.
    const curl = ["curl", "-sfk", "--output", "/dev/null", `https://${urlHost(this.address)}:10250/runningpods/`];
    const isServing = async (): Promise<boolean> => {
      // It ends if containerd serves and its CRI does not yet; systemd starts it again.
      const before = this.#programs.get("kubelet");
      if (before === undefined || before.exitCode !== null || before.signalCode !== null)
        this.#spawn("kubelet", ...argv);
      return (await start([...this.inside(), ...curl]).ended).code === 0;
    };
    await until(`the kubelet of ${this.name} serves`, isServing, { everyMs: 300, seen: () => this.said() });
  }

  #spawn(name: string, ...argv: readonly string[]): void {
    const log = openSync(join(this.#folder, `${name}.log`), "a");
    const script = `echo $$ >${join(this.#folder, name)}.pid; PATH=${this.#place.runtime.programs}:$PATH exec "$@"`;
    this.#programs.set(name, spawnLogged([...this.inside(), "sh", "-c", script, "sh", ...argv], log));
  }
}

/**
 * The first process of a node, which collects orphans: shims are such. Folders of the disk are bound into folders that exist only here.
 * What a kubelet sets for the whole kernel goes to files.
 */
const bootScript = ({ disk, etc }: Runtime): string => `set -e
mount -t tmpfs none /run
for one in etc opt var; do
  mkdir -p /run/over/$one/upper /run/over/$one/work
  mount -t overlay none -o lowerdir=/$one,upperdir=/run/over/$one/upper,workdir=/run/over/$one/work /$one
done
for one in etc/cni etc/isthmus/tunnel opt/cni var/lib/kubelet ${disk.join(" ")} var/lib/cni var/log/pods var/log/containers; do
  mkdir -p $1/disk/$one /$one
  mount --bind $1/disk/$one /$one
done
${Object.entries(etc)
  .map(([file, place]) => `install -D $1/${file} /etc/${place}`)
  .join("\n")}
# A program that removes it must find a folder, and no mount.
mkdir -p $1/disk/var/lib/isthmus
rm -rf /var/lib/isthmus
ln -s $1/disk/var/lib/isthmus /var/lib/isthmus
mkdir /run/sys
for one in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
  [ -e /proc/sys/$one ] || continue
  cat /proc/sys/$one >/run/sys/\${one##*/}
  mount --bind /run/sys/\${one##*/} /proc/sys/$one
done
mount --make-rshared /
hostname $2
echo 1 >/proc/sys/net/ipv4/ip_forward
# What a unit of systemd does on a real node before kubelet starts.
if [ -e $1/disk/boot ]; then sh $1/disk/boot; fi
touch /run/up
while :; do sleep 1000 & wait; done
`;

/** Nothing is evicted from a full machine of tests. JSON is YAML too. */
function kubeletConfig({ endpoint }: Runtime, cgroup: string, staticPodPath: string): string {
  return JSON.stringify({
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    // Of both families.
    address: "::",
    authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
    authorization: { mode: "AlwaysAllow" },
    staticPodPath,
    cgroupDriver: "cgroupfs",
    cgroupRoot: cgroup,
    cgroupsPerQOS: false,
    enforceNodeAllocatable: [],
    failSwapOn: false,
    failCgroupV1: false,
    containerRuntimeEndpoint: endpoint,
    evictionHard: {
      "memory.available": "1Mi",
      "nodefs.available": "0%",
      "imagefs.available": "0%",
      "nodefs.inodesFree": "0%",
    },
    localStorageCapacityIsolation: false,
    resolvConf: "",
    imageGCHighThresholdPercent: 100,
    syncFrequency: "10s",
  });
}

/** A kubeconfig, as text, for the owner of a token; `folder` has the authority. */
export function kubeconfigOf(folder: string, token: string, server: string): string {
  const cluster = { server: `https://${urlHost(server)}:6443`, "certificate-authority": join(folder, "ca.crt") };
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster }],
    users: [{ name: "u", user: { token } }],
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    "current-context": "c",
  });
}

/** An address as it is in URLs. */
export function urlHost(address: string): string {
  return address.includes(":") ? `[${address}]` : address;
}

/** Gives a machine its addresses on a link that is up. */
export function addAddresses(place: Place, machine: NodeName | "cp", link: string): void {
  for (const family of place.families) {
    const address = `${ADDRESSES[family][machine]}/${PREFIX_LENGTHS[family]}`;
    ip(place, machine, `address add ${address} dev ${link}${family === 6 ? " nodad" : ""}`);
  }
}

/** The name of the network namespace of a machine; that of the control plane is `cp`. */
export function netnsOf({ prefix }: Place, machine: string): string {
  return `${prefix}-${machine}`;
}

/** Runs ip(8) in the namespace of a machine. */
export function ip(place: Place, machine: string, command: string): void {
  execFileSync("ip", ["-n", netnsOf(place, machine), ...command.split(" ")]);
}

/** Makes the namespace of a machine; its name. */
export function addNetns(place: Place, machine: string): string {
  const name = netnsOf(place, machine);
  execFileSync("ip", ["netns", "add", name]);
  ip(place, machine, "link set lo up");
  return name;
}

/** Deletes the namespace of a machine, if it is there, and its link. */
export function deleteNetns(place: Place, machine: string): void {
  const name = netnsOf(place, machine);
  if (!existsSync(join("/run/netns", name))) return;
  // The kernel removes a namespace some time later; its link must not meet the next one.
  const links = execFileSync("ip", ["-n", name, "-br", "link"], { encoding: "utf8" });
  if (links.includes("eth0@")) ip(place, machine, "link delete eth0");
  execFileSync("ip", ["netns", "delete", name]);
}

/** Starts a program whose output goes to an open file. */
export function spawnLogged([file = "", ...args]: readonly string[], log: number): ChildProcess {
  return spawn(file, args, { stdio: ["ignore", log, log] });
}

/** Kills a program, if it runs, and waits for its end. */
export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
