import { GUEST_WORK } from "./initramfs.ts";

/** The purpose of this tier, and the other needs of its tests. Those of FoU are not among them: programs load these, and tests that start none. */
const MODULES = ["ipip", "ip6_tunnel", "dummy", "vxlan", "veth", "bridge", "macvlan", "tun", "nf_tables"] as const;

/** The guest's script: loads modules, runs the tests, leaves output and exit code in the work folder, and ends the guest. */
export function guestScript(checkout: string, node: string, patterns: readonly string[]): string {
  const quoted = patterns.map((pattern) => `'${pattern}'`).join(" ");
  return `export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 ISTHMUS_VM=1
ip link set lo up
echo 1 > /proc/sys/net/core/fb_tunnels_only_for_init_net # no tunl0 and ip6tnl0 in every namespace
modprobe -a ${MODULES.join(" ")}
cd "${checkout}"
# All files in one process: its start takes 6 s here.
"${node}" --import=./tools/without-async-hooks.mjs --import=./tools/compile-cache.mjs --test --test-isolation=none --test-reporter=spec --test-reporter-destination=${GUEST_WORK}/output ${quoted} > ${GUEST_WORK}/stderr 2>&1
code=$?
dmesg | grep -E "segfault|general protection|Out of memory" >> ${GUEST_WORK}/stderr
echo $code > ${GUEST_WORK}/exit
sync
echo b > /proc/sysrq-trigger
`;
}
