import { dirname, join } from "node:path";
import { type Estate, endpoints, type FileHolding, healthParts, rights, section } from "#base/estate";
import { clientEstate } from "#features/egress";
import { FORWARD_ESTATE } from "#features/forward-pass";
import { ADOPTED, podNetworkEstate } from "#features/pod-network";
import { GUARD_ESTATE } from "#features/source-guard";
import { handoverPath } from "#wire/cni-handover";
import { servedPath } from "../../shared/cni-plugin/index.ts";
import { ownFolders } from "../../shared/estate/index.ts";
import { FORWARDING_KEYS, formerSettingsPath } from "../../shared/former-settings/index.ts";

/** The flags of `coild` that change what it owns. */
export interface CoildNumbers {
  readonly podTableId: number;
  readonly podRulePrio: number;
  readonly exportTableId: number;
  readonly protocolId: number;
  readonly socket: string;
  readonly enableIpam: boolean;
  readonly enableEgress: boolean;
  readonly egressPort: number;
}

/** All that `coild` owns on its node. Pure. */
export function coildEstate(values: CoildNumbers): Estate {
  return {
    kernel: [
      ...(values.enableIpam ? hostHoldings(values) : []),
      ADOPTED,
      ...(values.enableEgress ? clientEstate(values.egressPort) : []),
    ],
    files: coildFiles(values.socket),
    folders: ownFolders("coild"),
    sections: SECTIONS,
  };
}

function hostHoldings(values: CoildNumbers): Estate["kernel"] {
  const { podTableId: tableId, podRulePrio: rulePriority, protocolId } = values;
  return [
    ...podNetworkEstate({ tableId, rulePriority, protocolId }),
    ...GUARD_ESTATE,
    ...FORWARD_ESTATE,
    {
      claims: [{ id: "export-routes", kind: "routes", table: values.exportTableId, protocol: protocolId }],
      flags: { table: "--export-table-id", protocol: "--protocol-id" },
      what: "this node's blocks, `dev lo`, for a routing daemon to export",
    },
    {
      claims: FORWARDING_KEYS.map((key) => ({ id: "forwarding", kind: "sysctl", key, value: "1" })),
      what: "set to 1; the values before are recorded",
    },
  ];
}

/** The lock of the `coild` that has this socket. Pure. */
export function coildLock(socket: string): string {
  return join(dirname(socket), "coild.lock");
}

/** The files of the `coild` that has this socket, the record of former settings last. Pure. */
export function coildFiles(socket: string): readonly FileHolding[] {
  const handover = handoverPath(socket);
  return [
    { path: socket, what: "the socket (`--socket`)" },
    ...(handover === undefined
      ? []
      : [
          {
            path: handover,
            what: "the hand-over socket: the socket's path followed by `.call1`, for calls of `coil`",
          },
        ]),
    { path: servedPath(socket), what: "when it could serve the last time, for STATUS" },
    {
      path: coildLock(socket),
      what: "locked while a coild runs; a second coild waits for it. If it is removed, it is made again within a second; a coild that finds the new one locked by another process ends",
    },
    { path: formerSettingsPath(socket), what: "forwarding and `accept_ra` before its first start since the boot" },
  ];
}

const SECTIONS: Estate["sections"] = [
  endpoints(":9384", ":9385"),
  section("Services on the socket", "gRPC method", "what")(
    ["`/pkg.cnirpc.CNI/Add`, `Del`, `Check`, `Status`, `GC`", "the methods that the CNI executable calls"],
    ["`/isthmus.dev.Node/Inspect`", "memory and kernel of this node as JSON, for `isthmus audit`"],
    [
      "`/isthmus.dev.Node/InspectEgress`",
      "what pods of this node have of NAT clients and routers as JSON, for `isthmus audit`",
    ],
    ["`/grpc.reflection.v1.ServerReflection`, `v1alpha`", "describes `pkg.cnirpc.CNI`, for tools such as grpcurl"],
  ),
  rights(
    [
      "pods",
      "get; list, to find the pods that are cut off, and clients that a router of this node refuses; watch of this node's pods, for NAT clients",
    ],
    [
      "events",
      "create, patch: events on pods that are cut off or connected again, on pods that lack a part of an Egress or an IPv6 address, on Egresses and their clients where a router of this node refuses flows, and on the Node while another machine has its name, or its CNI files are missing",
    ],
    ["`egresses`, services", "get, list, watch; not with `--enable-egress=false`"],
    ["namespaces", "get, list, watch"],
    ["nodes", "get; list and watch of this Node, to notice its deletion at once, and another machine with its name"],
    [
      "`addressblocks`",
      "get, list, update, delete; watch of this node's blocks, to notice changes by other programs at once",
    ],
    ["`blockrequests`", "get, list, watch, create, delete"],
    ["with `--enable-ipam=false`", "pods, services, `egresses`: get, list, watch; events: create, patch; nothing else"],
  ),
  section("Answers to STATUS", "code", "when")(
    ["0", "ADD can be served"],
    ["50", "coild does not run, or does not know its blocks yet; it lacks the privileges to make links"],
    ["51", "this Node was deleted, or attachments are cut off"],
  ),
  healthParts(
    [
      "`socket`",
      "it cannot be served: its file was removed and cannot be made again, or another process listens there; tried again twice a second; 503",
    ],
    ["`lock`", "`coild.lock` was removed and cannot be made and locked again, as without its folder; 503"],
    [
      "`ipam`",
      "blocks cannot be compared or released; this Node was deleted; addresses in use are in no block; addresses of a link cannot be read",
    ],
    ["`set-up`", "the last probe, which makes a pod's link in throwaway namespaces, was refused; 503"],
    [
      "`attachments`",
      "attachments are cut off: their blocks were deleted or belong to another node; 503 until their pods are deleted",
    ],
    [
      "`node`",
      "another machine has the name of this node, the Node has no InternalIP yet and no ExternalIP of this host, or its status is not this machine's yet: pods cannot start; 503",
    ],
    [
      "`hand-over`",
      "the hand-over socket cannot be served: calls of `coil` take longer, and it is tried again twice a second",
    ],
    [
      "`cni-files`",
      "the CNI configuration or an executable is missing, because it cannot be put back, or was removed more than three times within ten minutes; 503. It is absent where `coild` does not keep these files",
    ],
    [
      "`forward`",
      "the rules by which packets of pods pass FORWARD of iptables cannot be written, as those of iptables-legacy without `CAP_NET_RAW`; tried again every 10 s",
    ],
    ["`events`", "pods that are cut off cannot be found in the API"],
    ["`kernel`", "a route, rule or address of the pods' network cannot be restored"],
    ["`routes`", "blocks cannot be exported"],
    ["`watch`", "this node's objects cannot be watched; changes are then found at the next comparison"],
    [
      "`tunnel-driver`",
      "this kernel lacks what `--tunnel-driver` needs: pods that name an Egress do not start; it is tried again every minute",
    ],
    [
      "`egress-routers`",
      "a router of an Egress answers no probes of this node: its clients here use another one ([7.8](../spec/pod-network.md#7.8))",
    ],
    [
      "`refused-flows`",
      "it cannot be read whether a router on this node refuses flows, or a refused client cannot be looked up: events `EgressPortsExhausted` are missing ([9.3](../spec/pod-network.md#9.3))",
    ],
    [
      "`watch-pods`, `watch-egresses`, `watch-services`, `watch-namespaces`",
      "changes of Egresses do not reach running pods",
    ],
  ),
];
