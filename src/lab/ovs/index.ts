/**
 * Open vSwitch of Debian's package in a network namespace: its database and its switch, with the datapath in user space. No kernel module is
 * needed.
 *
 * Owns: the two processes and their folder. Does not know: the ports and who plugs them.
 *
 * ```ts
 * await using ovs = await OvsProcesses.open({ netns: "node-1" });
 * ovs.makeBridge("br-int");
 * new OpenVSwitch({ clock }, { socketPath: ovs.socketPath });
 * ```
 */
export { isOvsInstalled, OvsProcesses } from "./ovs-processes.ts";
