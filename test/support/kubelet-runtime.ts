/**
 * The container runtimes of a {@link KubeletNode}, as data: their files, how they are started and asked, and how they get images.
 *
 * Owns: nothing. Does not know: nodes, kubelets.
 *
 * ```ts
 * const runtime = containerd(PROGRAMS);
 * spawn(runtime.argv(folder));
 * await run(runtime.importing(folder, archive));
 * ```
 */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { PROGRAMS } from "#test/containerd";

/** The image of the sandboxes, which is on every node. Its one program is busybox. */
export const BOX = "localhost/isthmus-box:1";

export interface Runtime {
  readonly name: "containerd" | "crio";
  /** The folders of its programs, as a PATH. */
  readonly programs: string;
  /** Its socket, for the kubelet. */
  readonly endpoint: string;
  /** Files in the folder of the node, by name; they can be run. */
  readonly files: (folder: string) => Readonly<Record<string, string>>;
  /** Files of its folder that have a place in /etc. */
  readonly etc: Readonly<Record<string, string>>;
  /** Folders of the node that are on its disk. */
  readonly disk: readonly string[];
  /** Starts it; `folder` is that of the node. */
  readonly argv: (folder: string) => readonly string[];
  /** Succeeds when it serves. */
  readonly probe: readonly string[];
  /** Gives it an image. */
  readonly importing: (folder: string, archive: string) => readonly string[];
}

/** Containerd, its shim and ctr are in `programs`. */
export const containerd = (programs: string): Runtime => ({
  name: "containerd",
  programs,
  endpoint: "unix:///run/containerd/containerd.sock",
  files: () => ({ "containerd.toml": CONTAINERD }),
  etc: {},
  disk: ["var/lib/containerd"],
  argv: (folder) => ["containerd", `--config=${join(folder, "containerd.toml")}`],
  probe: ["ctr", "version"],
  importing: (_folder, archive) => ["ctr", "--namespace=k8s.io", "images", "import", archive],
});

const STORAGE = { root: "/var/lib/containers/storage", runroot: "/run/containers/storage", driver: "overlay" } as const;

/** CRI-O, its `pinns` and `copyimg` are in `folder`, conmon and runc are Debian's. */
export const crio = (own: string): Runtime => ({
  name: "crio",
  programs: `${own}:${PROGRAMS}`,
  endpoint: "unix:///run/crio/crio.sock",
  files: (folder) => ({
    "crio.conf": crioConfig(own, folder),
    runc: RUNC,
    "policy.json": JSON.stringify({ default: [{ type: "insecureAcceptAnything" }] }),
    "registries.conf": `unqualified-search-registries = ["docker.io"]\nshort-name-mode = "disabled"\n`,
  }),
  etc: { "registries.conf": "containers/registries.conf" },
  disk: ["var/lib/containers", "var/lib/crio"],
  argv: (folder) => [
    "crio",
    `--config=${join(folder, "crio.conf")}`,
    "--config-dir=",
    `--signature-policy=${join(folder, "policy.json")}`,
  ],
  probe: ["curl", "-sf", "--unix-socket", "/run/crio/crio.sock", "--output", "/dev/null", "http://localhost/info"],
  importing: (folder, archive) => [
    "copyimg",
    `--root=${STORAGE.root}`,
    `--runroot=${STORAGE.runroot}`,
    `--storage-driver=${STORAGE.driver}`,
    `--signature-policy=${join(folder, "policy.json")}`,
    `--import-from=oci-archive:${archive}`,
    `--add-name=${imageOf(archive)}`,
    `--image-name=${imageOf(archive)}`,
  ],
});

/** The name of the image of an archive. */
function imageOf(archive: string): string {
  const text = execFileSync("tar", ["-xOf", archive, "--wildcards", "*index.json"], { encoding: "utf8" });
  return /"io\.containerd\.image\.name": ?"([^"]+)"/.exec(text)?.[1] ?? "";
}

const CONTAINERD = `version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${BOX}"
  disable_apparmor = true
  restrict_oom_score_adj = true
`;

/**
 * Asks for nothing that a machine of tests may refuse, as containerd does by itself: lower scores of processes, limits of huge pages, and the capability
 * to exceed limits.
 */
const RUNC = `#!/bin/sh
spec= option=
for one in "$@"; do
  case $option in
    --bundle|-b) spec=$one/config.json ;;
    --process|-p) spec=$one ;;
  esac
  option=$one
done
[ -n "$spec" ] && sed -i -z \\
  -e 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj": '$(cat /proc/self/oom_score_adj)'/' \\
  -e 's/"hugepageLimits": *[[][^]]*[]]/"hugepageLimits": []/' \\
  -e 's/,[[:space:]]*"CAP_SYS_RESOURCE"//g' \\
  "$spec"
exec runc "$@"
`;

function crioConfig(own: string, folder: string): string {
  return `[crio]
root = "${STORAGE.root}"
runroot = "${STORAGE.runroot}"
storage_driver = "${STORAGE.driver}"
[crio.runtime]
default_runtime = "runc"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
pinns_path = "${join(own, "pinns")}"
seccomp_profile = ""
apparmor_profile = "unconfined"
hooks_dir = []
default_ulimits = []
[crio.runtime.runtimes.runc]
runtime_path = "${join(folder, "runc")}"
runtime_type = "oci"
runtime_root = "/run/runc"
[crio.image]
pause_image = "${BOX}"
pause_command = "/bin/busybox sleep 1000000000"
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/opt/cni/bin"]
[crio.nri]
enable_nri = false
`;
}
