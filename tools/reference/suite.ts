import { endpoints, files, kernel, type Section, section } from "./section.ts";

/** Notes by program. A number that a flag sets is the flag's default. */
export const suite: Readonly<Record<string, readonly Section[]>> = {
  node: [endpoints(":9390", ":9391")],
  lab: [
    files(
      ["`/run/isthmus/lab-<name>/kubeconfig`", "the API server on loopback, for people"],
      ["`/run/isthmus/lab-<name>/kubeconfig-nodes`", "the same as nodes reach it"],
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
        "which processes and nodes the lab has; with `--kubeconfig`, which run's objects the cluster has until they are removed",
      ],
    ),
    kernel(
      ["namespace `isthmus-<name>-fabric`", "the bridge between the nodes, and the API server's address for them"],
      ["namespace `isthmus-<name>-cp`", "with `--tunnel`: the API server and `proxy-server`, behind the firewall"],
      [
        "nftables table `inet isthmus-lab` in that",
        "the firewall: nodes reach port 8091, everything else is dropped, both ways",
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
        "on everything that a lab makes: its name, and which run made it; see [the guide](../guides/lab-on-a-cluster.md)",
      ],
      ["Node `isthmus-<name>-<run>-node<N>`, Lease `kube-node-lease/` of that name", "a node, which lives"],
      ["taint `lab.isthmus.dev/lab=<name>:NoSchedule`", "keeps the cluster's own pods off the Nodes"],
      ["Namespace, AddressPool `isthmus-<name>-<run>-…`", "workloads and their addresses"],
      ["Lease `kube-system/coil-ipam-leader`", "of the lab's controller; the cluster's controller is used if it leads"],
    ),
    section("The report of `--json`", "member", "what")(
      ["`ok`", "whether everything below is as it should be"],
      ["`lab`, `families`, `seconds`", "name, families that pods have, time from the start of the command"],
      ["`nodes`", "`name`, `addresses`, `pods` (how many), `blocks` (`name`, `pool`, `prefixes`)"],
      ["`pods`", "`name`, `node`, `addresses`"],
      ["`pings`", "`sent`, `answered`, `unanswered` (`from`, `to`, `address`, `reason`)"],
      ["`addresses`", "`total`, `unique`, `outsideBlocks`"],
      ["`routes`", "`exported`, `wanted`: prefixes in the nodes' export tables"],
      ["`audit`", "`findings` (`kind`, `node`, `text`)"],
      [
        "`tunnel`",
        "with `--tunnel`: `agents` (`connected`, `wanted`); `direct`: connections past the tunnel (`tried`, `refused`, `open`); `reverse`: nodes and pods to the API server (`tried`, `answered`, `failures`, `connections`); `programs` of nodes that reach it so (`wanted`, `connected`, `missing`); `forward`: control plane to `pods` and `nodePorts` (`tried`, `answered`, `failures`), `connections`; `seconds`",
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
      ["`duplicate-address`", "two pods, or two links, hold one address"],
      ["`address-outside-block`", "a pod's address is in no block of its node"],
      ["`orphan-block`", "a block is of a Node that does not exist"],
      ["`overlapping-blocks`", "two blocks share addresses"],
      ["`block-memory`", "coild and the API server differ on which blocks are the node's"],
      ["`attachment-memory`", "coild and the kernel differ on an attachment's addresses"],
      ["`leaked-attachment`", "a link belongs to no pod"],
      ["`missing-attachment`", "no link leads to a pod's address"],
      ["`half-made-link`", "a link of an ADD that never ended"],
      ["`unknown-address`", "an attachment's address is in no block that coild knows"],
      ["`route-export`", "the export table is not the node's blocks"],
      ["`unmarked-pod`", "behind another plugin: no link bears the mark of a running pod"],
      ["`stray-mark`", "behind another plugin: a link bears the mark of a pod that is not running on the node"],
    ),
  ],
  explain: [],
  doctor: [],
};
