/** The CNI executable takes no flags; all of its page is written here. */
export const CNI_PAGE = `# coil

The CNI executable. A container runtime runs it for each pod; it passes the call to \`coild\` and returns its answer. It has no state and
decides nothing. \`coil\` is a launcher of 3 KiB for \`coild\`'s hand-over socket; \`coil-standalone\` beside it does the same by gRPC, and the launcher
runs it if no process serves that socket, or if the configuration names another \`coild\`.

## Commands

\`ADD\`, \`DEL\`, \`CHECK\` (from \`cniVersion\` 0.4.0), \`STATUS\` and \`GC\` (from 1.1.0) and \`VERSION\`, in \`CNI_COMMAND\`, with \`CNI_CONTAINERID\`, \`CNI_NETNS\`, \`CNI_IFNAME\`,
\`CNI_ARGS\` and \`CNI_PATH\` as the CNI specification has them. Versions: 0.3.1, 0.4.0, 1.0.0, 1.1.0. \`CNI_ARGS\` must hold
\`K8S_POD_NAMESPACE\` and \`K8S_POD_NAME\` for ADD; with \`K8S_POD_UID\` a call for a pod's predecessor is refused.

## Configuration

| key | default | meaning |
| --- | --- | --- |
| \`type\` | | \`coil\` |
| \`socket\` | \`/run/coild.sock\` | coild's UNIX socket, an absolute path: the default, or one that a coild of this node has served since the node started (\`/run/isthmus/sockets\`). Another is code 7, since with Multus a tenant writes the configuration; a DEL then asks the node's own coild |
| \`mtu\` | that of coild | MTU of the pod's link, bytes, 576 to 65535 |
| \`capabilities\` | none | with \`"mac": true\` a runtime can pass on the MAC address that a pod asks for, as \`runtimeConfig.mac\`; it is the address of the pod's interface. \`"ips"\` must not be there: a demand for particular addresses is refused |

It allocates addresses itself, so it must be the first plugin of its network. Behind another interface plugin (\`coild --enable-ipam=false\`) the capabilities are that plugin's.

## Errors

One JSON object on standard output, exit code 1. Where standard output is closed or cannot be written, the object is on standard error.

| code | when |
| --- | --- |
| 1 | a \`cniVersion\` that is not supported, or that does not have the command: CHECK needs 0.4.0, GC and STATUS 1.1.0 |
| 3 | the pod does not exist, or has another UID |
| 4 | \`CNI_*\` variables, \`CNI_ARGS\` or the network namespace are wrong |
| 5 | standard output is closed, and nothing was begun; or the answer cannot be written to it |
| 6 | the network configuration is not a JSON object |
| 7 | a field of the network configuration is wrong, \`runtimeConfig.ips\` has addresses, environment and configuration are larger than 4 MiB, or coil is chained after another plugin |
| 8 | \`CNI_NETNS\` is the plugin's own network namespace, and \`CNI_NETNS_OVERRIDE\` is not 1 or true; DEL still removes the attachment |
| 11 | try again: coild or the API server cannot be reached, or the pool has no addresses or does not exist |
| 50 | STATUS: ADD cannot be served, and could not a minute ago either |
| 51 | STATUS: pods are cut off |
| 999 | anything else |

A call is cancelled after 60 s. A DEL while coild cannot be reached succeeds only if the namespace is deleted and the attachment has no link any more.
`;
