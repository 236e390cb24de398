/** The CNI executables of VPCs take no flags; all of their page is written here. */
export const VPC_CNI_PAGE = `# vpc-neutron, vpc-alcor

The CNI executables for pods with NICs of a VPC. A container runtime runs one of them for each pod; it passes the call to [\`nic-agent\`](nic-agent.md) on the node and returns its
answer. Both are in \`dist/cni\`, each with the executable that it runs (\`vpc-neutron-standalone\`): copy both files of the \`type\` of the configuration into the runtime's folder of executables. Variables that begin with \`BUN_\` have no effect.

## Commands

\`ADD\`, \`DEL\`, \`CHECK\` (from \`cniVersion\` 0.4.0), \`VERSION\`, \`GC\` and \`STATUS\` (from 1.1.0). Versions: 0.3.1, 0.4.0, 1.0.0, 1.1.0. A pod is found by \`K8S_POD_UID\` in \`CNI_ARGS\`. A
runtime of virtual machines can pass \`VPC\` and \`NICs\` there instead: \`VPC=demo;NICs=[{"portid":"…"}]\`. The result has an interface without \`sandbox\` for each device of the host, and one with it for
each NIC.

## Configuration

| key | default | meaning |
| --- | --- | --- |
| \`type\` | | \`vpc-neutron\` or \`vpc-alcor\` |
| \`socket\` | \`/run/isthmus/vpc.sock\` | the agent's UNIX socket, an absolute path: the default, or one that a \`nic-agent\` of this node has served since the node started (\`/run/isthmus/sockets\`). Another is code 7; a DEL then asks the node's own agent |
| \`capabilities\` | none | \`{"io.kubernetes.cri.pod-annotations": true}\`: the runtime passes the pod's annotations, so that a pod whose NicClaim is late is known to have a VPC; without it the agent reads the Pod. What plugins under \`delegate\` are to get, such as \`portMappings\`, must be named here too |
| \`delegate\` | none | the configuration of the plugin for pods without a VPC, or of a list of them (\`{"plugins": […]}\`), which are run as a runtime runs those of a network; with \`"disableCheck": true\` beside \`plugins\` they are not checked. One of a list gets the part of the runtime's data that its own \`capabilities\` name; the runtime passes what those of this plugin name |
| \`plumbTimeoutMs\` | 30000 | how long ADD waits for bound ports, milliseconds, at most 50000 |
| \`activeTimeoutMs\` | 15000 | how long it waits for active ports after they are plugged, at most 50000. Both together must be less than 60 s |
| \`requireActive\` | true | false: ADD succeeds although a port is not active in this time |
| \`plugMode\` | that of the agent | \`hybrid\`: a Linux bridge before the integration bridge; \`direct\`: none; \`auto\`: as the port's binding says, else hybrid |
| \`ovsdb\`, \`integrationBridge\` | those of the agent | \`unix:\` and the socket of Open vSwitch's database; the bridge, which goes before the one that the binding names |
| \`vmMode\` | \`veth\` | \`tap\`: a pod with \`isthmus.dev/vm\` gets a TAP device for the machine, and its sandbox nothing; \`nic-agent\` must be privileged then (chart value \`nics.taps\`) |
| \`vmOwnerUid\`, \`vmMultiQueue\` | that of the agent, false | the user who may open the TAP device, and whether it can have several queues |
| \`nsPrefix\` | that of the agent | vpc-alcor: the beginning of the names of VPCs' namespaces, where a NicClaim does not name it |
| \`probe_tm_ms\` | 3000 | vpc-alcor: how long ADD waits for the device of Alcor's agent, at most 60000; 0: the default |
| \`mizarTuning\` | true | vpc-alcor: \`net.ipv4.tcp_mtu_probing\` is 2 in the sandbox, and segmentation and checksums of the device are off |
| \`bindBy\` | \`controller\` | no other value is possible: \`cni\` would need credentials of the cloud on the node ([design](../design/nics.md#what-we-leave-out)) |
| \`probeIntervalMs\`, \`credentials\` | | no effect: the agent is told of changes, and nodes have no credentials of a cloud |

\`plugMode\`, \`ovsdb\`, \`integrationBridge\`, \`vmOwnerUid\` and \`nsPrefix\` reach beyond the pod, and with Multus a tenant writes the configuration: a value that is neither that of [the agent's flags](nic-agent.md#flags) nor one of its
\`--allow-configuration\` is refused by name at ADD. A DEL is never refused: it uses the agent's value then.

The NIC \`eth0\` of the pod has the name of \`CNI_IFNAME\` in the sandbox. So the network works as a secondary one too, as with Multus: \`eth0\` and the default routes stay those of the first network, and each NIC answers by itself from its own
addresses. Attach it once for a pod: all its NICs come with it.

It makes interfaces itself, so it must be the first plugin of its network.

## Errors

One JSON object on standard output, exit code 1.

| code | when |
| --- | --- |
| 1 | a \`cniVersion\` that is not supported, or that does not have the command |
| 3 | the network namespace does not exist |
| 4 | \`CNI_*\` variables or \`CNI_ARGS\` are wrong, or name ports of another pod |
| 6, 7 | the network configuration is not a JSON object; a field of it is wrong |
| 8 | \`CNI_NETNS\` is the plugin's own network namespace |
| 11 | try again: ports are not bound or not active yet, and the message has the state of each; the agent or Open vSwitch cannot be reached |
| 101 | a NIC cannot be had before the pod is replaced; the pod has an event \`NicFailed\` |
| 102 | the integration bridge does not exist |
| 103 | CHECK: the differences |
| 104 | the pod has no VPC, and there is no \`delegate\` |
| 105 | a device or port with the name that a NIC needs belongs to something else; the sandbox has the pod's NICs already, under another \`CNI_IFNAME\` |
| 999 | anything else |

A DEL of what is not there succeeds. A DEL while the agent cannot be reached is code 11, so that the runtime repeats it.
`;
