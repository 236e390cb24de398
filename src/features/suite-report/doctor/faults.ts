import type { DoctorCheck } from "#base/diagnosis";

/** A fault that `isthmus doctor` names. */
interface Fault {
  readonly name: string;
  readonly at: "node" | "cluster";
  /** The fault in one sentence. */
  readonly title: string;
  /** The symptoms that an operator sees. */
  readonly sees: string;
  /** The remedy; the finding has it with the names of the objects. */
  readonly fix: string;
}

/** The faults that `isthmus doctor` names; docs/guides/doctor.md has a section for each. */
export const FAULTS = [
  {
    name: "cni-order",
    at: "node",
    title: "Another network's CNI configuration comes before the suite's, or there is none of the suite",
    sees: "New pods of the node have addresses of another network, or stay in ContainerCreating.",
    fix: "Move the other file aside, or run coil-installer, which does so.",
  },
  {
    name: "cni-executable",
    at: "node",
    title: "A CNI executable that the configuration names is missing or cannot be run",
    sees: "Pods stay in ContainerCreating; their events say: failed to find plugin in path.",
    fix: "Run coil-installer for coil, vpc-neutron and vpc-alcor; install the package of CNI plugins for others.",
  },
  {
    name: "daemon-socket",
    at: "node",
    title: "The daemon behind the CNI executable does not answer at the socket that the configuration names",
    sees: "Pods stay in ContainerCreating; ADD ends with code 11.",
    fix: "Start the daemon and look at its log, or give it the socket of the configuration.",
  },
  {
    name: "forwarding",
    at: "node",
    title: "The kernel does not forward packets",
    sees: "Pods of the node reach only pods of the same node, and no Service.",
    fix: "Set the sysctl, and remove the file or program that sets it back.",
  },
  {
    name: "rule-order",
    at: "node",
    title: "The routing rule of pods is missing, or a rule for all packets comes before it",
    sees: "Packets to pods of the node leave by its uplink, or are dropped.",
    fix: "Give the other rule a higher number than that of the pods, or restrict it.",
  },
  {
    name: "networkd",
    at: "node",
    title: "systemd-networkd removes rules and routes of others",
    sees: "Packets of pods, or of uplinks, are lost for a moment when networkd restarts or reloads, as in an update of systemd.",
    fix: "Turn ManageForeignRoutingPolicyRules and ManageForeignRoutes off in networkd.conf.",
  },
  {
    name: "forward-filter",
    at: "node",
    title: "A packet filter of others drops what the node forwards for pods",
    sees: "Pods of the node reach the node alone, and nobody reaches them, as with firewalld's last rule.",
    fix: "Let the filter accept packets from and to the pods' ranges, and write that into the file that loads it.",
  },
  {
    name: "input-filter",
    at: "node",
    title: "A packet filter of others drops what others send to a port of the suite",
    sees: "A load balancer takes the node out, agents of the tunnel cannot connect, or writes are refused because the API server reaches no webhook.",
    fix: "Let the filter accept that port from those who need it, and write that into the file that loads it. The suite opens nothing there.",
  },
  {
    name: "source-guard",
    at: "node",
    title: "Packets of a pod are refused because of their source, or nobody looks at the sources of pods",
    sees: "A pod that routes for others loses packets (SourceRefused in its events); or any pod can send as any other.",
    fix: "Allow the sources in the Namespace and name them in the pod, or find out what forges them; with another plugin, let it or a network policy guard.",
  },
  {
    name: "rival-proxy",
    at: "node",
    title: "kube-proxy's rules translate Services beside service-proxy",
    sees: "Connections to Services go to endpoints that do not exist any more.",
    fix: "Remove kube-proxy from the node, and its rules.",
  },
  {
    name: "service-route",
    at: "node",
    title: "The node has no route to the range of Services",
    sees: "Programs of the node itself connect to no Service, nor to the API server by its cluster IP: ENETUNREACH, network is unreachable. Pods do.",
    fix: "Give the node a default route, or a route to the range: rules translate a packet only after the kernel has found a route for it.",
  },
  {
    name: "route-localnet",
    at: "node",
    title: "The kernel accepts packets for 127.0.0.1 from outside, as another proxy has set it",
    sees: "Hosts of the node's networks may reach what listens at 127.0.0.1 alone.",
    fix: "Set the sysctl back, and remove the file that sets it; service-proxy does not need it.",
  },
  {
    name: "conntrack",
    at: "node",
    title: "The table of connections is nearly full",
    sees: "New connections time out; the kernel's log says: nf_conntrack: table full, dropping packet.",
    fix: "Raise net.netfilter.nf_conntrack_max, and look for a program that leaves connections open.",
  },
  {
    name: "egress-translated",
    at: "node",
    title: "The node translates the sources of packets that clients send to their Egress",
    sees: "Pods of the node reach nothing through their Egress; routers count coil_egress_dropped_packets_total with the reason translated.",
    fix: "Give kube-proxy the pods' pools as clusterCIDR, and turn masqueradeAll and ipMasq of the plugin ptp or bridge off.",
  },
  {
    name: "egress-ports",
    at: "node",
    title: "A router of an Egress on the node has no common source port left to a destination",
    sees: "New connections of some pods to that destination fail with No route to host or Permission denied; routers count coil_egress_dropped_packets_total with the reason ports.",
    fix: "Find out why its pods hold so many connections to one address and port. Or raise spec.replicas of the Egress; a pod uses more than one router only with spec.sessionAffinity None, and with FoU spec.fouSourcePortAuto.",
  },
  {
    name: "mtu",
    at: "node",
    title: "Pods have a larger MTU than the node's uplink, or one below 1280, with which there is no IPv6",
    sees: "Small packets pass and large transfers stop; or pods have no IPv6 address (event Ipv6Omitted).",
    fix: "Raise the MTU of the uplink, or start coild with --mtu and make the pods again.",
  },
  {
    name: "port-taken",
    at: "node",
    title: "Another process answers at a port of a program's health endpoints",
    sees: "The program starts again and again; its log says: EADDRINUSE.",
    fix: "End the other process, or give the program another port.",
  },
  {
    name: "marks",
    at: "node",
    title: "Two programs have one number or name in the kernel, or others have routes in a table of the suite",
    sees: "One program removes what the other has made, or packets of pods and uplinks take routes of others.",
    fix: "Give one of the two other numbers by its flags or settings, or move the routes to a table of their own.",
  },
  {
    name: "folder",
    at: "node",
    title: "A folder that the node's programs write is read-only or full",
    sees: "Programs do not start, or NICs are not plugged; logs say: EROFS or ENOSPC.",
    fix: "Free space, or mount the folder for writing.",
  },
  {
    name: "kernel",
    at: "node",
    title: "The kernel lacks what a running program needs",
    sees: "service-proxy ends at its start; pods that name an Egress cannot start.",
    fix: "Load the module, or change to the driver that the kernel has.",
  },
  {
    name: "certificate",
    at: "node",
    title: "A certificate of the tunnel has expired, ends soon or cannot be read",
    sees: "Agents do not connect: kubectl logs and exec fail for the node.",
    fix: "Renew the certificate; the program reads the new file by itself.",
  },
  {
    name: "clock",
    at: "node",
    title: "The clock of the machine is apart from the API server's",
    sees: "Certificates are not valid yet, tokens are refused, leaders change.",
    fix: "Start a time service such as chrony, and look at its sources.",
  },
  {
    name: "crd",
    at: "cluster",
    title: "A CustomResourceDefinition is missing, being deleted, or older than this program",
    sees: "Programs are not ready, or fields of objects are dropped without a word.",
    fix: "Apply the CRDs of this version.",
  },
  {
    name: "webhook",
    at: "cluster",
    title: "The API server cannot call an admission webhook",
    sees: "Pools, Egresses or pods cannot be created: failed calling webhook.",
    fix: "Start the controller that serves it; let it renew the certificate with --enable-cert-rotation.",
  },
  {
    name: "pool",
    at: "cluster",
    title: "A pool has no free block, and nodes ask for one; or it is being deleted",
    sees: "Pods stay in ContainerCreating: pool default does not have free blocks.",
    fix: "Append a subnet to the pool; give the namespaces of one that is being deleted another pool.",
  },
  {
    name: "stray-block",
    at: "cluster",
    title: "Blocks belong to Nodes that are gone",
    sees: "The pool has less room than its pods use.",
    fix: "Let the controller collect them: look why it does not run.",
  },
  {
    name: "node-address",
    at: "cluster",
    title: "Two Nodes have one InternalIP, or a Node has none",
    sees: "Pods of one of the nodes are not reached from the others.",
    fix: "Start the kubelets with --node-ip.",
  },
  {
    name: "versions",
    at: "cluster",
    title: "A program runs in two versions",
    sees: "Nodes behave differently; an upgrade has stopped halfway.",
    fix: "Finish the rollout, or look at the pods that hold it up.",
  },
  {
    name: "not-ready",
    at: "cluster",
    title: "Pods of the suite are not ready",
    sees: "Depends on the program; isthmus status names the parts.",
    fix: "Look at the log of the pod.",
  },
  {
    name: "egress-routers",
    at: "cluster",
    title: "An Egress has no ready router, or too few",
    sees: "Pods that name the Egress do not reach its destinations.",
    fix: "Look at the pods of its Deployment and their events.",
  },
  {
    name: "egress-refused",
    at: "cluster",
    title: "A pod names an Egress that does not allow its namespace",
    sees: "The pod does not start (event EgressRefused), or runs and does not reach the Egress's destinations.",
    fix: "Ask those who manage the Egress to add the namespace to its spec.allowedNamespaces, or remove the pod's annotation.",
  },
  {
    name: "source-ranges",
    at: "cluster",
    title: "spec.loadBalancerSourceRanges of a Service lets in more, or fewer, than it seems to",
    sees: "Everybody reaches the load balancer's addresses in the family that has no range; or clients of a range that cannot be read are refused.",
    fix: "Add a range of the other family, or write the entry as a prefix.",
  },
  {
    name: "network-policy",
    at: "cluster",
    title: "NetworkPolicies exist, and nobody enforces them",
    sees: "Pods are reached by everybody, whatever the policies say: the API server takes them without a word.",
    fix: "Run an enforcer beside the suite on every node; the suite enforces none.",
  },
  {
    name: "leader",
    at: "cluster",
    title: "No replica of a controller leads",
    sees: "No block is carved, no router is made, no port is created.",
    fix: "Look at the pods of the controller and their rights on Leases.",
  },
  {
    name: "rights",
    at: "cluster",
    title: "The account of a program lacks a right",
    sees: "The program is not ready; its log says: forbidden.",
    fix: "Apply the manifest with the rights of this version.",
  },
] as const satisfies readonly Fault[];

/** The name of a fault. */
export type FaultName = (typeof FAULTS)[number]["name"];

/** A result of `isthmus doctor`. */
export interface FaultCheck extends DoctorCheck {
  /** The check: the name of the fault that it can find. */
  readonly name: FaultName;
}

/** Makes the results for one fault. A remedy is a command or a field. */
export function judged(name: FaultName, subject: string) {
  const check =
    (state: DoctorCheck["state"]) =>
    (text: string, remedy?: string): FaultCheck => ({
      name,
      state,
      subject,
      text,
      ...(remedy === undefined ? {} : { remedy }),
    });
  return { ok: check("ok"), warning: check("warning"), wrong: check("wrong"), unknown: check("unknown") };
}
