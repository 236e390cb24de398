import type { FaultCheck } from "./faults.ts";
import { markChecks } from "./mark-checks.ts";
import { cniOrder, executables, sockets } from "./node-cni.ts";
import type { NodeFacts } from "./node-facts.ts";
import { sourceGuard } from "./node-guard.ts";
import {
  certificates,
  clock,
  conntrack,
  folders,
  kernel,
  ports,
  sourcePorts,
  translatedClients,
} from "./node-machine.ts";
import {
  forwardFilters,
  forwarding,
  inputFilters,
  ipv6Mtu,
  mtu,
  networkd,
  rivals,
  routeLocalnet,
  ruleOrder,
  serviceRoutes,
} from "./node-packets.ts";

/** Judges a node. On a machine without any part of the suite nothing is found. Pure. */
export function judgeSuiteNode(facts: NodeFacts): readonly FaultCheck[] {
  return [
    ...cniOrder(facts),
    ...executables(facts),
    ...sockets(facts),
    ...forwarding(facts),
    ...ruleOrder(facts),
    ...networkd(facts),
    ...forwardFilters(facts),
    ...inputFilters(facts),
    ...sourceGuard(facts),
    ...rivals(facts),
    ...serviceRoutes(facts),
    ...routeLocalnet(facts),
    ...conntrack(facts),
    ...translatedClients(facts),
    ...sourcePorts(facts),
    ...mtu(facts),
    ...ipv6Mtu(facts),
    ...ports(facts),
    ...markChecks(facts.marks),
    ...folders(facts),
    ...kernel(facts),
    ...certificates(facts),
    ...clock(facts),
  ];
}
