/**
 * Open vSwitch of Debian's package for tests. Needs root; all of it ends when it is disposed.
 *
 * Owns: the reason to skip. Does not know: ports of a VPC.
 *
 * ```ts
 * await using ovs = await OvsBed.open({ netns: "node-1" });
 * new OpenVSwitch({ clock }, { socketPath: ovs.socketPath });
 * ```
 */
import { isOvsInstalled } from "#lab/ovs";

export { OvsProcesses as OvsBed } from "#lab/ovs";

/** The reason to skip a test of Open vSwitch; `false` where it is installed. */
export const skipWithoutOvs: string | false = isOvsInstalled() ? false : "package: openvswitch-switch is not installed";
