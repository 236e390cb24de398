import { files, kernel, rights, type Section, section } from "#base/estate";
import { EGRESS_FINDINGS } from "#features/egress";
import { NIC_FINDINGS } from "#features/nic-report";
import { FAULTS } from "#features/suite-report";

/** Notes by program. A number that a flag sets is the flag's default. */
export const suite: Readonly<Record<string, readonly Section[]>> = {
  lab: [
    files(
      ["`/run/isthmus/lab-<name>/kubeconfig`", "kubeconfig with the API server's address on loopback, for users"],
      ["`/run/isthmus/lab-<name>/kubeconfig-nodes`", "kubeconfig with the API server's address for nodes"],
      ["`/run/isthmus/lab-<name>/<node>/coild.sock`", "a node's coild"],
      ["`/run/isthmus/lab-<name>/logs/<program>-<node>.log`", "logs of the programs; `host.log` of the lab itself"],
      [
        "`/run/isthmus/lab-<name>/control-plane/`",
        "with `--tunnel`: `frontend.sock`, on which the control plane requests connections (HTTP CONNECT), and the tunnel's certificates",
      ],
      [
        "`/run/isthmus/lab-<name>/uplinks/`",
        "with `--uplinks`: settings and sockets of `uplink-proxy`, authority of the internet's server",
      ],
      [
        "`/run/isthmus/lab-<name>/state.json`",
        "the processes and nodes of the lab; with `--kubeconfig`, the run whose objects the cluster has until they are removed",
      ],
    ),
    kernel(
      ["namespace `isthmus-<name>-fabric`", "the bridge between the nodes, and the API server's address for them"],
      ["namespace `isthmus-<name>-cp`", "with `--tunnel`: the API server and `proxy-server`, behind the firewall"],
      [
        "nftables table `inet isthmus-lab` in that namespace",
        "the firewall: nodes reach port 8091, all other packets are dropped, in both directions",
      ],
      [
        "namespaces `isthmus-<name>-wan0`, `-wan1`, `-internet`",
        "with `--uplinks`: providers and the internet; table `inet isthmus-lab` in a provider: the fault",
      ],
      ["namespaces `isthmus-<name>-node<N>`", "the nodes; with `--services` the tables of `service-proxy` in them"],
      ["namespaces `isthmus-<name>-pod-<node>-<id>`", "the pods"],
    ),
    section("On another cluster", "object", "what")(
      [
        "labels `lab.isthmus.dev/lab` and `lab.isthmus.dev/run`",
        "on all objects of a lab: the name of the lab, and the run that made the object; see [the guide](../guides/lab-on-a-cluster.md)",
      ],
      [
        "Node `isthmus-<name>-<run>-node<N>`, Lease of that name in `kube-node-lease`",
        "a node of the lab, and its heartbeat",
      ],
      ["taint `lab.isthmus.dev/lab=<name>:NoSchedule`", "keeps the cluster's own pods off the Nodes"],
      ["Namespace, AddressPool `isthmus-<name>-<run>-…`", "workloads and their addresses"],
      ["Lease `kube-system/coil-ipam-leader`", "of the lab's controller; the cluster's controller is used if it leads"],
    ),
    section("The report of `--json`", "member", "what")(
      ["`ok`", "whether all results below are right"],
      ["`lab`, `families`, `seconds`", "name, families that pods have, time from the start of the command"],
      ["`nodes`", "`name`, `addresses`, `pods` (how many), `blocks` (`name`, `pool`, `prefixes`)"],
      ["`pods`", "`name`, `node`, `addresses`"],
      ["`pings`", "`sent`, `answered`, `unanswered` (`from`, `to`, `address`, `reason`)"],
      ["`addresses`", "`total`, `unique`, `outsideBlocks`"],
      ["`routes`", "`exported`, `wanted`: prefixes in the nodes' export tables"],
      [
        "`audit`",
        "`findings` (`kind`, `node`, `text`); with `--egress` also `egress`: `egresses`, `clients`, `routers` that were compared",
      ],
      [
        "`tunnel`",
        "with `--tunnel`: `agents` (`connected`, `wanted`); `direct`: connections that bypass the tunnel (`tried`, `refused`, `open`); `reverse`: nodes and pods to the API server (`tried`, `answered`, `failures`, `connections`); `programs` of nodes that reach it so (`wanted`, `connected`, `missing`); `forward`: control plane to `pods` and `nodePorts` (`tried`, `answered`, `failures`), `connections`; `seconds`",
      ],
      [
        "`uplinks`",
        "with `--uplinks`: `node`, `links` (`name`, `cost`, `addresses`), `downloads` (`when`, `to`, `uplink`, `wanted`, `bytes`, `seconds`, `ok`, `error`), `recoveries` (`fault`, `seconds`, `backSeconds`), `carried` by uplink (`tunnels`, `bytes`), `seconds`",
      ],
      [
        "`services`",
        "with `--services`: `services`, `tries` (`from`, `to`, `wanted`, `got`, `ok`), `drain` (`node`, `through`, `underWay`, `outSeconds`, `localOutSeconds`, `backSeconds`, `connections`, `long`, `failed`), `rollouts` (`deployment`, `externalTrafficPolicy`, `pods`, `seconds`, `connections`, `long`, `failed`), `seconds`",
      ],
    ),
  ],
  audit: [
    section("Findings", "kind", "what disagrees")(
      ["`duplicate-address`", "two pods, or two links, have the same address"],
      ["`address-outside-block`", "a pod's address is in no block of its node"],
      ["`orphan-block`", "a block belongs to a Node that does not exist"],
      ["`overlapping-blocks`", "two blocks share addresses"],
      ["`block-memory`", "coild and the API server have different blocks of the node"],
      ["`attachment-memory`", "coild and the kernel have different addresses of an attachment"],
      ["`leaked-attachment`", "a link belongs to no pod"],
      ["`missing-attachment`", "no link leads to a pod's address"],
      ["`half-made-link`", "a link of an ADD that did not end"],
      ["`unguarded-link`", "the source guard has other addresses for a link than the kernel's routes"],
      ["`unknown-address`", "an attachment's address is in no block that coild knows"],
      ["`route-export`", "the routes in the export table differ from the node's blocks"],
      ["`unmarked-pod`", "behind another plugin: no link has the mark of a running pod"],
      ["`stray-mark`", "behind another plugin: a link has the mark of a pod that does not run on the node"],
      [
        "`left-over`",
        "this machine has routes or rules with a number that a program had before, or that one without an estate has by default",
      ],
      ...Object.entries({ ...EGRESS_FINDINGS, ...NIC_FINDINGS }).map(([kind, what]) => [`\`${kind}\``, what] as const),
    ),
    section("The output of `--json`", "member", "what")(
      ["`ok`", "whether there is no finding"],
      [
        "`checked`",
        "`nodes`, `blocks`, `pods`, `links`, `exportedRoutes`; `egress` (`egresses`, `clients`, `routers`, `clientsElsewhere`, `routersElsewhere`), absent where Egress NAT was not compared; `nics` (`claims`, `ports`, `nics`, `claimsElsewhere`), absent where there are no NICs of VPCs",
      ],
      ["`findings`", "`kind`, `node` (absent if it is the cluster's; of a left-over the name of this machine), `text`"],
      ["`notes`", "what was not compared, and why"],
    ),
    rights(
      ["`addressblocks`, pods, nodes", "list"],
      ["`egresses`, services", "list; without it Egress NAT, or its clients, are not compared"],
      ["deployments, endpointslices", "list; without it these are not compared"],
      ["clusterrolebindings `coil-egress` and `psp-coil-egress`", "get; without it they are not compared"],
      ["`nicclaims`", "list; without it NICs of VPCs are not compared"],
      ["namespaces", "list, where there are NicClaims: the VPC that a namespace gives to its pods"],
      ["`nicpolicies`", "get, with `--nic-credentials`"],
    ),
  ],
  explain: [],
  doctor: [
    section(
      "Faults",
      "name",
      "found with",
      "what is wrong",
      "fix",
    )(...FAULTS.map(({ name, at, title, fix }) => [`\`${name}\``, at === "node" ? "" : "`--cluster`", title, fix])),
    rights(
      [
        "with `--cluster`: nodes, customresourcedefinitions, mutatingwebhookconfigurations, validatingwebhookconfigurations, addresspools, addressblocks, blockrequests, egresses, pods, namespaces, services, deployments, daemonsets, networkpolicies, leases, endpointslices, secrets",
        "get, list",
      ],
      ["with `--cluster`: subjectaccessreviews", "create, which stores nothing"],
    ),
  ],
  status: [
    rights(
      [
        "nodes, pods, addresspools, addressblocks, blockrequests, egresses, deployments, services, endpointslices, nicclaims, leases, events",
        "list",
      ],
      ["networkpolicies, daemonsets", "list, where coild runs"],
      ["pods/proxy", "get"],
    ),
  ],
};
