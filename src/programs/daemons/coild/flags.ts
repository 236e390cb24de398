import {
  choiceFlag,
  durationFlag,
  type FlagValues,
  integerFlag,
  repeatedFlag,
  stringFlag,
  switchFlag,
} from "#base/config";
import { Cidr } from "#base/ip";
import { FILTER_BACKENDS, TUNNEL_DRIVERS } from "#features/egress";
import { POD_DEFAULTS } from "#features/pod-network";
import { DEFAULT_SOCKET } from "#wire/cni";
import { coilLogFlags, endpointFlags, kubeFlags } from "../../shared/daemon/index.ts";
import { recordFlag } from "../../shared/pass-record/index.ts";

const id = { min: 1, max: 4_294_967_295 };
/** Behind another plugin Coil's manifests set the table to 0 or 255 and the protocol to 2, because that plugin makes the routes. */
const MIN_PROTOCOL_ID = 3;

/** The flags of `coild`. */
export const coildFlags = {
  ...endpointFlags(":9384", ":9385"),
  podTableId: integerFlag("pod-table-id", POD_DEFAULTS.tableId, "routing table of the routes to pods", {
    ...id,
    min: 0,
  }),
  podRulePrio: integerFlag(
    "pod-rule-prio",
    POD_DEFAULTS.rulePriority,
    "priority of the rule that directs packets to that table",
    {
      min: 1,
      max: 32_765,
    },
  ),
  exportTableId: integerFlag("export-table-id", 119, "routing table that blocks are exported to", id),
  protocolId: integerFlag("protocol-id", POD_DEFAULTS.protocolId, "protocol number that marks our routes", {
    min: 0,
    max: 255,
  }),
  socket: stringFlag("socket", DEFAULT_SOCKET, "UNIX socket that CNI executables call", "PATH"),
  nodeAddresses: choiceFlag(
    "node-addresses",
    ["host", "any"],
    "host",
    "InternalIPs of this Node: with host one of them must be an address of this host, else another machine has the name of this node; any: they are not compared",
  ),
  compatCalico: switchFlag("compat-calico", false, "name the host's links as Calico does"),
  registerFromMain: switchFlag("register-from-main", false, "find existing pods by routes in the main table too"),
  gcInterval: durationFlag(
    "addressblock-gc-interval",
    "5m",
    "how often this node's blocks are compared with the API server",
    { min: "1s" },
  ),
  attachmentGcGrace: durationFlag(
    "attachment-gc-grace",
    "15m",
    "how long an attachment without a sandbox and without a Pod object is kept: its container runtime has forgotten it; 0s: for ever",
  ),
  criSocket: stringFlag(
    "cri-socket",
    "",
    "socket of the container runtime, which is asked for its sandboxes; empty: a namespace without a process has none",
    "PATH",
  ),
  clearRoutesOnShutdown: switchFlag(
    "clear-routes-on-shutdown",
    false,
    "withdraw the exported routes when coild ends after its Node was deleted",
  ),
  blockReleaseDelay: durationFlag("block-release-delay", "0s", "how long an empty block is kept for reuse"),
  mtu: integerFlag("mtu", 0, "MTU of pods, bytes; 0: the smallest of the links with a default route", {
    min: 0,
    max: 65_535,
  }),
  hostLinkLocal: switchFlag("host-link-local", false, "gateway of IPv4 pods is 169.254.1.1, not the node's address"),
  enableIpam: switchFlag(
    "enable-ipam",
    true,
    "give pods addresses and links; false: coil is chained behind another interface plugin",
  ),
  sourceGuard: choiceFlag(
    "source-guard",
    ["on", "count", "off"],
    "on",
    "packets of pods with sources that are not theirs: on drops them, count lets them pass and reports them, off does not look",
  ),
  enableEgress: switchFlag("enable-egress", true, "give pods that name an Egress a NAT client"),
  egressPort: integerFlag("egress-port", 5555, "UDP port of the tunnels to routers; the same as theirs", {
    min: 1,
    max: 65_535,
  }),
  tunnelDriver: choiceFlag(
    "tunnel-driver",
    TUNNEL_DRIVERS,
    "fou",
    "how packets to routers are carried; auto: fou if the kernel has it, else vxlan; the same as the routers'",
  ),
  inClusterCidr: repeatedFlag(
    "in-cluster-cidr",
    (text) => Cidr.parse(text),
    "a range that a wider destination of an Egress does not capture; default: the private ranges",
    "CIDR",
  ),
  backend: choiceFlag(
    "backend",
    FILTER_BACKENDS,
    "iptables",
    "packet filter of clients whose Egress is originatingOnly",
  ),
  enableOriginatingOnly: switchFlag(
    "enable-originating-only",
    false,
    "answers of connections that came in from elsewhere leave by their way, not through an Egress; spec.originatingOnly of an Egress goes before",
  ),
  ...recordFlag,
  ...kubeFlags,
  ...coilLogFlags,
};

/** Values of {@link coildFlags}. */
export type CoildValues = FlagValues<typeof coildFlags>;

/** Pure: the faults of the flags; each text names the flag. */
export function faultsOf(values: {
  readonly enableIpam: boolean;
  readonly enableEgress: boolean;
  readonly podTableId: number;
  readonly exportTableId: number;
  readonly protocolId: number;
}): string[] {
  const faults: string[] = [];
  if (!values.enableIpam && !values.enableEgress)
    faults.push("--enable-ipam, --enable-egress: both are false, so coild has no work; set one of them to true");
  if (!values.enableIpam) return faults;
  if (values.podTableId === 0)
    faults.push(
      "--pod-table-id: 0 is for --enable-ipam=false only; choose a table that nothing else uses, such as 116",
    );
  if (values.protocolId < MIN_PROTOCOL_ID)
    faults.push(`--protocol-id: ${values.protocolId} is used by the kernel itself; choose 3 to 255, such as 30`);
  if (values.podTableId === values.exportTableId)
    faults.push(
      `--export-table-id: ${values.exportTableId} is the table of --pod-table-id too; choose two different tables`,
    );
  return faults;
}
