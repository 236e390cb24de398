/** podman of Debian bookworm, whose networks are CNI's, runs a container through the shipped CNI executable. */
import assert from "node:assert/strict";
import { chmodSync, copyFileSync, existsSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { removeCgroups } from "#test/cgroups";
import { CniNode } from "#test/cni-node";
import { type Outcome, start } from "#test/lab";

const DEBIAN = join(import.meta.dirname, "../../.state/debian");
const PODMAN = join(DEBIAN, "usr/bin/podman");
const CGROUP_PARENT = "/isthmus-podman";
/** runc makes it, wherever its state is. */
const RUNC = "/run/runc";
const NETWORK = "k8s-pod-network";

/** CNI results are kept in /var/lib/cni, which is podman's alone then. Namespaces that it pins in /run/netns are seen outside. */
const OWN_VAR_LIB = `set -e
mount --make-private /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work"
mount -t overlay none -o "lowerdir=/var/lib,upperdir=$1/upper,workdir=$1/work" /var/lib
shift
exec "$@"`;

/** A node with podman, whose one network is coil's; what a container prints. */
async function open(t: TestContext) {
  assert.ok(existsSync(PODMAN), `no podman at ${PODMAN}: ./run test unpacks Debian's package there`);
  const node = await CniNode.open("podman");
  const hadRunc = existsSync(RUNC);
  t.after(async () => {
    await node[Symbol.asyncDispose]();
    if (!hadRunc && existsSync(RUNC)) rmdirSync(RUNC);
    await removeCgroups(CGROUP_PARENT);
  });
  const at = (...parts: readonly string[]): string => join(node.folder, ...parts);
  for (const one of ["rootfs/bin", "rootfs/proc", "rootfs/dev", "rootfs/sys", "rootfs/etc", "net.d", "bin", "tmp"])
    mkdirSync(at(one), { recursive: true });
  copyFileSync("/bin/busybox", at("rootfs/bin/busybox"));
  // podman tells the container's name as the pod's, and no namespace.
  writeFileSync(
    at("bin/coil"),
    `#!/bin/sh\n[ -z "$CNI_ARGS" ] || [ -z "$POD_NAMESPACE" ] || export CNI_ARGS="$CNI_ARGS;K8S_POD_NAMESPACE=$POD_NAMESPACE"\nexec ${node.plugin}\n`,
  );
  chmodSync(at("bin/coil"), 0o755);
  const plugins = [{ type: "coil", socket: node.socket }];
  writeFileSync(at("net.d/10-coil.conflist"), JSON.stringify({ cniVersion: "0.4.0", name: NETWORK, plugins }));
  writeFileSync(
    at("containers.conf"),
    `[engine]
cgroup_manager = "cgroupfs"
conmon_path = ["${join(DEBIAN, "usr/bin/conmon")}"]
events_logger = "none"
runtime = "runc"
tmp_dir = "${at("libpod")}"
conmon_env_vars = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=${join(DEBIAN, "usr/lib/x86_64-linux-gnu")}"]
[engine.runtimes]
runc = ["${join(DEBIAN, "usr/sbin/runc")}"]
[network]
network_backend = "cni"
network_config_dir = "${at("net.d")}"
cni_plugin_dirs = ["${at("bin")}"]
`,
  );
  const run = (
    name: string,
    env: Readonly<Record<string, string>>,
    ...command: readonly string[]
  ): Promise<Outcome> => {
    const own = ["unshare", "--mount", "--propagation=unchanged", "sh", "-c", OWN_VAR_LIB, "sh", at("tmp")];
    const podman = [
      PODMAN,
      `--root=${at("root")}`,
      `--runroot=${at("runroot")}`,
      "--storage-driver=vfs",
      `--runtime-flag=root=${at("runc")}`,
    ];
    const options = [
      "--rm",
      `--name=${name}`,
      `--network=${NETWORK}`,
      "--ulimit=nofile=1024:1024",
      "--ulimit=nproc=1024:1024",
      `--cgroup-parent=${CGROUP_PARENT}`,
    ];
    const argv = [...own, ...podman, "run", ...options, "--rootfs", at("rootfs"), "/bin/busybox", ...command];
    const library = {
      LD_LIBRARY_PATH: join(DEBIAN, "usr/lib/x86_64-linux-gnu"),
      CONTAINERS_CONF: at("containers.conf"),
    };
    return start(node.inside(...argv), { env: { ...library, ...env } }).ended;
  };
  return { node, run };
}

test("podman: a container gets the addresses of the pod of its name, and leaves nothing; without a namespace it is refused by name", async (t) => {
  const { node, run } = await open(t);
  await node.createPod("by-podman");
  const shown = await run("by-podman", { POD_NAMESPACE: "default" }, "ip", "-o", "address", "show", "dev", "eth0");
  assert.equal(shown.code, 0, shown.stderr);
  assert.match(shown.stdout, /inet 10\.210\.0\.\d+\/32/);
  assert.match(shown.stdout, /inet6 fd00:210::[0-9a-f]*\/128/);
  assert.deepEqual(node.attachments(), []);
  const refused = await run("by-podman", {}, "true");
  assert.notEqual(refused.code, 0);
  assert.match(refused.stderr, /CNI_ARGS lacks K8S_POD_NAMESPACE/);
  const unknown = await run("nobody", { POD_NAMESPACE: "default" }, "true");
  assert.match(unknown.stderr, /pod default\/nobody does not exist/);
  assert.deepEqual(node.attachments(), []);
});
