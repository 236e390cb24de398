/**
 * A real containerd, from Debian's packages `containerd` and `runc`, which `./run test` unpacks into `.state/debian`, with `ctr` and a
 * client of its CRI. It needs no registry: its one image is made of Debian's `busybox-static`.
 *
 * Owns: the process in a mount namespace of its own, its folder, sandboxes and tasks until it is disposed. Does not know: CNI plugins.
 *
 * ```ts
 * await using containerd = await Containerd.start({ netns, config: conflist, plugins: { coil: "/path/of/coil" } });
 * const id = await containerd.runPodSandbox({ namespace: "default", name: "web", uid });
 * ```
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { acquireFileLock } from "#kernel/lock";
import { removeCgroups } from "#test/cgroups";
import { type Outcome, type Running, start, until } from "#test/lab";
import { fieldBytes, fieldText, ProtoWriter, readFields } from "#wire/protobuf";

export const DEBIAN = join(import.meta.dirname, "../../.state/debian");
/** The folders of containerd, its shims, runc and ctr, as a PATH. */
export const PROGRAMS = `${join(DEBIAN, "usr/bin")}:${join(DEBIAN, "usr/sbin")}`;
const BUSYBOX = "/bin/busybox";
/** The image of every container. Its process serves files over HTTP. */
export const IMAGE = "localhost/isthmus-web:1";
/** The port of {@link IMAGE}. */
export const PORT = 8080;
/** The text that {@link IMAGE} serves. */
export const PAGE = "served by busybox";
const CALL_MS = 30_000;
/** One containerd of these tests runs at a time. */
const LOCK = join(tmpdir(), "isthmus-containerd.lock");
/** The time that another one may run, in milliseconds. */
const LOCK_MS = 300_000;

/** A pod for {@link Containerd.runPodSandbox}. */
export interface PodConfig {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly annotations?: Readonly<Record<string, string>>;
  /** Ports of the host that lead to {@link PORT}. */
  readonly hostPorts?: readonly number[];
}

export interface ContainerdOptions {
  /** The network namespace in which it runs, by name. */
  readonly netns: string;
  /** The network: a list of plugins. */
  readonly config: object;
  /** Executables of plugins by type. */
  readonly plugins: Readonly<Record<string, string>>;
}

/** Waits until no other test of this machine runs a containerd, for {@link LOCK_MS} at the most; disposing lets the next one run. */
export function takeTurn(): Promise<AsyncDisposable> {
  return acquireFileLock(LOCK, { signal: AbortSignal.timeout(LOCK_MS) });
}

interface Before {
  /** Held while it runs: another containerd of this machine would take this one's namespaces and sockets for what it has left. */
  readonly lock: AsyncDisposable;
  readonly namespaces: ReadonlySet<string>;
  readonly hasRun: boolean;
}

/** Disposing ends all containers. */
export class Containerd implements AsyncDisposable {
  readonly #folder: string;
  readonly #child: ChildProcess;
  readonly #client: Client;
  readonly #sandboxes = new Set<string>();
  /** The objects that existed before. */
  readonly #before: Before;

  private constructor(folder: string, child: ChildProcess, before: Before) {
    this.#folder = folder;
    this.#before = before;
    this.#child = child;
    this.#client = new Client(`unix:${join(folder, "containerd.sock")}`, credentials.createInsecure());
  }

  /** Resolves when its CRI is ready and has the image. */
  static async start(options: ContainerdOptions): Promise<Containerd> {
    if (!existsSync(join(DEBIAN, "usr/bin/containerd")) || !existsSync(join(DEBIAN, "usr/sbin/runc")))
      throw new Error(`no containerd or runc in ${DEBIAN}: ./run test unpacks Debian's packages there`);
    const folder = mkdtempSync(join(tmpdir(), "isthmus-containerd-"));
    const [bin, conf] = [join(folder, "cni/bin"), join(folder, "cni/net.d")];
    for (const one of [bin, conf, join(folder, "tmp")]) mkdirSync(one, { recursive: true });
    for (const [type, file] of Object.entries(options.plugins)) symlinkSync(file, join(bin, type));
    writeFileSync(join(conf, "10-coil.conflist"), JSON.stringify(options.config));
    writeFileSync(join(folder, "config.toml"), configOf(folder));
    writeFileSync(join(folder, "start.sh"), START);
    const before = {
      lock: await takeTurn(),
      namespaces: new Set(namespaces()),
      hasRun: existsSync(RUN),
    };
    const log = openSync(join(folder, "log"), "a");
    const child = spawn(
      "nsenter",
      [`--net=/run/netns/${options.netns}`, "unshare", "--mount", "--propagation=unchanged", "sh", "start.sh"],
      { cwd: folder, stdio: ["ignore", log, log], env: { ...process.env, PATH: `${PROGRAMS}:${process.env["PATH"]}` } },
    );
    const containerd = new Containerd(folder, child, before);
    try {
      await until("the CRI answers", () => containerd.#isReady(), { seen: () => containerd.log() });
      await containerd.#importImage();
      return containerd;
    } catch (error) {
      await containerd[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The end of its log. */
  log(): string {
    return readFileSync(join(this.#folder, "log"), "utf8").slice(-3000);
  }

  /** A command that runs another one where `ctr` finds it, and what it runs with by default. */
  wrap(): readonly string[] {
    const at = `/proc/${this.#child.pid}/ns`;
    const variables = [`CONTAINERD_ADDRESS=${this.#folder}/containerd.sock`, "CONTAINERD_SNAPSHOTTER=native"];
    return ["nsenter", `--mount=${at}/mnt`, `--net=${at}/net`, "env", ...variables];
  }

  /** Resolves with true if the CRI has an image under the name that a pod gives. */
  async hasImage(name: string): Promise<boolean> {
    const request = new ProtoWriter().message(1, new ProtoWriter().string(1, name).finish());
    return (await this.#call("ImageService/ImageStatus", request)).length > 0;
  }

  /** Runs `ctr` beside it. plugins get `env` too. */
  ctr(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Outcome> {
    return this.startCtr(args, { env, timeoutMs: CALL_MS }).ended;
  }

  /** The same, while it runs. */
  startCtr(
    args: readonly string[],
    { env = {}, timeoutMs }: { readonly env?: Readonly<Record<string, string>>; readonly timeoutMs: number },
  ): Running {
    const argv = [...this.wrap(), "ctr"];
    const path = `${PROGRAMS}:${process.env["PATH"]}`;
    return start([...argv, ...args], { env: { ...env, PATH: path }, timeoutMs });
  }

  /** Conditions of the CRI's Status that hold, by type. */
  async status(): Promise<Record<string, boolean>> {
    const answer = await this.#call("RuntimeService/Status", new ProtoWriter());
    const conditions: Record<string, boolean> = {};
    for (const field of readFields(first(answer, 1))) {
      if (field.number !== 1) continue;
      const parts = [...readFields(fieldBytes(field))];
      const type = parts.find(({ number }) => number === 1);
      if (type !== undefined)
        conditions[fieldText(type)] = parts.some(({ number, value }) => number === 2 && value === 1);
    }
    return conditions;
  }

  /** Returns the sandbox's id. */
  async runPodSandbox(pod: PodConfig): Promise<string> {
    const config = new ProtoWriter().message(
      1,
      new ProtoWriter().string(1, pod.name).string(2, pod.uid).string(3, pod.namespace).finish(),
    );
    config.string(2, pod.name);
    for (const port of pod.hostPorts ?? []) {
      config.message(5, new ProtoWriter().uint(2, PORT).uint(3, port).finish());
    }
    for (const [key, value] of Object.entries(pod.annotations ?? {})) {
      config.message(7, new ProtoWriter().string(1, key).string(2, value).finish());
    }
    config.message(8, new ProtoWriter().string(1, CGROUP_PARENT).finish());
    const answer = await this.#call("RuntimeService/RunPodSandbox", new ProtoWriter().message(1, config.finish()));
    const id = new TextDecoder().decode(first(answer, 1));
    this.#sandboxes.add(id);
    return id;
  }

  async stopPodSandbox(id: string): Promise<void> {
    await this.#call("RuntimeService/StopPodSandbox", new ProtoWriter().string(1, id));
  }

  async removePodSandbox(id: string): Promise<void> {
    await this.#call("RuntimeService/RemovePodSandbox", new ProtoWriter().string(1, id));
    this.#sandboxes.delete(id);
  }

  /** Addresses of a sandbox, the first one first. */
  async addressesOf(id: string): Promise<string[]> {
    const answer = await this.#call("RuntimeService/PodSandboxStatus", new ProtoWriter().string(1, id));
    const network = [...readFields(first(first(answer, 1), 5))];
    return network.flatMap((field) => {
      if (field.number === 1) return [fieldText(field)];
      return field.number === 2 ? [new TextDecoder().decode(first(fieldBytes(field), 1))] : [];
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _lock = this.#before.lock;
    for (const id of this.#sandboxes) {
      try {
        await this.stopPodSandbox(id);
        await this.removePodSandbox(id);
      } catch {
        // If this fails, the test has already failed; the remains of the sandbox are ended below.
      }
    }
    this.#client.close();
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, "exit");
      this.#child.kill("SIGKILL");
      await ended;
    }
    // The shims are not its children, but name its folder; a task is a child of its shim.
    for (const pid of this.#shims()) {
      for (const task of childrenOf(pid)) process.kill(task, "SIGKILL");
      process.kill(pid, "SIGKILL");
    }
    for (const name of namespaces())
      if (!this.#before.namespaces.has(name)) execFileSync("ip", ["netns", "delete", name]);
    await removeCgroups(CGROUP_PARENT);
    if (!this.#before.hasRun) rmdirSync(RUN);
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #shims(): number[] {
    return pids().filter((pid) =>
      readProc(`/proc/${pid}/cmdline`).split("\0").includes(`${this.#folder}/containerd.sock`),
    );
  }

  async #isReady(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error(`containerd ended with ${this.#child.exitCode}: ${this.log()}`);
    if (!existsSync(join(this.#folder, "containerd.sock"))) return false;
    try {
      const status = await this.status();
      return status["RuntimeReady"] === true && status["NetworkReady"] === true;
    } catch (error) {
      // UNAVAILABLE and UNIMPLEMENTED: it has just started.
      if ([12, 14].includes((error as ServiceError).code)) return false;
      throw error;
    }
  }

  /** The image is imported for the CRI and for `ctr`. */
  async #importImage(): Promise<void> {
    const archive = makeImage(this.#folder, IMAGE, ["httpd", "-f", "-p", String(PORT), "-h", "/www"]);
    for (const namespace of ["k8s.io", "default"]) {
      const args = ["--namespace", namespace, "images", "import", "--snapshotter=native", archive];
      const { code, stderr } = await this.ctr(args);
      if (code !== 0) throw new Error(`ctr images import ended with ${code}: ${stderr}`);
    }
    await until("the CRI has the image", () => this.hasImage(IMAGE));
  }

  #call(method: string, request: ProtoWriter): Promise<Uint8Array> {
    const same = (value: Buffer): Buffer => value;
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        `/runtime.v1.${method}`,
        same,
        same,
        Buffer.from(request.finish()),
        new Metadata(),
        { deadline: Date.now() + CALL_MS },
        (error, answer) => (error === null ? resolve(answer ?? Buffer.alloc(0)) : reject(error)),
      );
    });
  }
}

/** Shims have their sockets below. */
const RUN = "/run/containerd";

/** Namespaces that the CRI has pinned. */
function namespaces(): string[] {
  return existsSync("/run/netns") ? readdirSync("/run/netns").filter((name) => name.startsWith("cni-")) : [];
}

/** The cgroup above all cgroups of the test's containers. */
export const CGROUP_PARENT = "/isthmus-test";

/**
 * `ctr` reads networks and plugins from fixed places, shims have their sockets in one, and results of plugins are kept in one: each is the
 * folder's in a mount namespace of containerd's own. Namespaces that it pins in /run/netns have to be seen outside, so that mount stays
 * shared.
 */
const START = `set -e
here=$(pwd)
mount --make-private /
mount -t tmpfs none tmp
for one in etc opt var/lib; do
  mkdir -p tmp/$one/upper tmp/$one/work
  mount -t overlay none -o lowerdir=/$one,upperdir=$here/tmp/$one/upper,workdir=$here/tmp/$one/work /$one
done
mkdir -p /etc/cni /opt/cni tmp/run
ln -s $here/cni/net.d /etc/cni/net.d
ln -s $here/cni/bin /opt/cni/bin
mkdir -p /run/containerd
mount --bind tmp/run /run/containerd
exec containerd --config config.toml
`;

function configOf(folder: string): string {
  return `version = 2
root = "${folder}/root"
state = "${folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "${folder}/containerd.sock"
[ttrpc]
  address = "${folder}/containerd.ttrpc.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${folder}/cni/bin"
    conf_dir = "${folder}/cni/net.d"
`;
}

/** Makes an OCI archive with busybox at /bin, and {@link PAGE} below /www, in a folder. `command` is what busybox runs. Returns its path. */
export function makeImage(folder: string, name: string, command: readonly string[]): string {
  const [rootfs, oci] = [join(folder, "rootfs"), join(folder, "oci")];
  for (const one of [join(rootfs, "bin"), join(rootfs, "www"), join(rootfs, "tmp"), join(oci, "blobs/sha256")])
    mkdirSync(one, { recursive: true });
  copyFileSync(BUSYBOX, join(rootfs, "bin/busybox"));
  writeFileSync(join(rootfs, "www/index.html"), PAGE);
  const tar = (from: string, to: string): unknown => execFileSync("tar", ["-C", from, "-cf", to, "."]);
  const blob = (bytes: Uint8Array): { readonly digest: string; readonly size: number } => {
    const hex = createHash("sha256").update(bytes).digest("hex");
    writeFileSync(join(oci, "blobs/sha256", hex), bytes);
    return { digest: `sha256:${hex}`, size: bytes.length };
  };
  const json = (value: object): Buffer => Buffer.from(JSON.stringify(value));
  tar(rootfs, join(folder, "layer.tar"));
  const layer = blob(readFileSync(join(folder, "layer.tar")));
  const config = blob(
    json({
      architecture: "amd64",
      os: "linux",
      config: { Entrypoint: ["/bin/busybox", ...command], Env: ["PATH=/bin"] },
      rootfs: { type: "layers", diff_ids: [layer.digest] },
    }),
  );
  const media = "application/vnd.oci.image";
  const manifest = blob(
    json({
      schemaVersion: 2,
      mediaType: `${media}.manifest.v1+json`,
      config: { mediaType: `${media}.config.v1+json`, ...config },
      layers: [{ mediaType: `${media}.layer.v1.tar`, ...layer }],
    }),
  );
  const annotations = { "io.containerd.image.name": name };
  const entry = { mediaType: `${media}.manifest.v1+json`, ...manifest, annotations };
  writeFileSync(join(oci, "index.json"), json({ schemaVersion: 2, manifests: [entry] }));
  writeFileSync(join(oci, "oci-layout"), json({ imageLayoutVersion: "1.0.0" }));
  tar(oci, join(folder, "image.tar"));
  return join(folder, "image.tar");
}

/** The content of the first field of this number; empty if it is missing. */
function first(message: Uint8Array, number: number): Uint8Array {
  for (const field of readFields(message)) if (field.number === number) return fieldBytes(field);
  return new Uint8Array(0);
}

function pids(): number[] {
  return readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? [Number(name)] : []));
}

function childrenOf(parent: number): number[] {
  return pids().filter((pid) => {
    const stat = readProc(`/proc/${pid}/stat`);
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === parent;
  });
}

/** Returns an empty text for a process that has ended meanwhile. */
function readProc(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
    throw error;
  }
}
