import type { IpAddress } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { type ServicePort, servicePortId } from "../model/index.ts";
import { addressKey, frontEndId, portBytes } from "../plan/index.ts";
import { type Step, type Trace, traceAll } from "../trace/index.ts";
import { tooLargeText } from "../track/index.ts";
import { type Cluster, type ExplainConfig, type NodePlan, planNode, readCluster } from "./cluster.ts";
import { packetOf, type QuestionPacket, readDestination, readPod } from "./packet.ts";
import type { Question } from "./question.ts";

/** An endpoint that the packet may arrive at. */
export interface Arrival {
  readonly address: string;
  readonly port: number;
  /** The receiver sees an address of this node as the sender. */
  readonly masqueraded: boolean;
  /** Node and pod of the endpoint, from its slice. */
  readonly node?: string;
  readonly pod?: string;
}

/** The answer, as `--json` prints it. */
export interface Explanation {
  readonly node: string;
  /** `ip kube-proxy`. */
  readonly table: string;
  readonly from: string;
  readonly packet: {
    readonly source: string;
    readonly destination: string;
    readonly port: number;
    readonly protocol: string;
  };
  /** `untouched`: no rule of the proxy applies to the packet. */
  readonly outcome: "translated" | "untouched" | "dropped" | "rejected";
  /** `namespace/name:port/protocol`. */
  readonly service?: string;
  /** Each connection goes to one of these endpoints at random. Empty unless the outcome is `translated`. */
  readonly arrivals: readonly Arrival[];
  /** The deciding rule, and the Service's element, or else the last element that was found. */
  readonly decidedBy?: {
    readonly chain: string;
    readonly rule: string;
    readonly set?: string;
    readonly element?: string;
  };
  /** The rules that apply to the packet on its way to the first endpoint. */
  readonly steps: readonly Step[];
  readonly notes: readonly string[];
}

/** Everything that `explain` needs besides the question. */
export interface ExplainOptions {
  /** Configuration of the node's proxy. The answer is for its `nodeName`, unless `followsPod` applies. */
  readonly config: ExplainConfig;
  /** If true and the sender is a pod, the answer is for the pod's node. */
  readonly followsPod: boolean;
  /** Addresses of the node that its Node does not name. */
  readonly localAddresses: readonly IpAddress[];
  readonly signal: AbortSignal;
}

/** Reads the API server, plans as the node's proxy does, and traces the packet. Rejects with `ExplainError` and `KubeError`. */
export async function explainPacket(api: KubeApi, question: Question, options: ExplainOptions): Promise<Explanation> {
  const pod = await readPod(api, question.source, options);
  const destination = await readDestination(api, question.destination, question.source, options);
  const nodeName = (options.followsPod ? pod?.spec?.nodeName : undefined) ?? options.config.nodeName;
  const config = { ...options.config, nodeName };
  const cluster = await readCluster(api, nodeName, options);
  const plan = planNode(cluster, config, destination.family, options.localAddresses);
  const questionPacket = packetOf(question, destination, plan, { nodeName, pod });
  return answer(questionPacket, plan, cluster, config);
}

/** Pure. */
function answer(question: QuestionPacket, plan: NodePlan, cluster: Cluster, config: ExplainConfig): Explanation {
  const { packet, from, notes } = question;
  const traces = traceAll(packet, plan.context);
  const [first] = traces;
  const { outcome } = first;
  const service = serviceOf(first);
  const decidedBy = decisionOf(first);
  return {
    node: config.nodeName,
    table: `${plan.family === 4 ? "ip" : "ip6"} ${config.tableName}`,
    from,
    packet: {
      source: packet.source.toString(),
      destination: packet.destination.toString(),
      port: packet.port,
      protocol: packet.protocol,
    },
    outcome: outcome.kind === "delivered" ? (outcome.isTranslated ? "translated" : "untouched") : outcome.kind,
    ...(service === undefined ? {} : { service }),
    arrivals: arrivalsOf(traces, cluster),
    ...(decidedBy === undefined ? {} : { decidedBy }),
    steps: first.steps,
    notes: [...notes, ...notesOn(question, first, plan)],
  };
}

function serviceOf({ steps }: Trace): string | undefined {
  return steps.findLast(({ element }) => element?.service !== undefined)?.element?.service;
}

/** The rule and the element that decide; `undefined` for an untouched packet. */
function decisionOf({ outcome, steps }: Trace): Explanation["decidedBy"] {
  const isDelivered = outcome.kind === "delivered";
  const last = isDelivered ? steps.findLast(({ action }) => action === "dnat") : steps.at(-1);
  if (last === undefined) return undefined;
  const verdicts = steps.filter(({ action, element }) => action === "map" && element !== undefined);
  const found = last.action === "dnat" ? undefined : last.element;
  const element = found ?? verdicts.at(-1)?.element ?? steps.findLast((step) => step.element !== undefined)?.element;
  const { chain, text: rule } = last;
  return element === undefined ? { chain, rule } : { chain, rule, set: element.set, element: element.text };
}

function arrivalsOf(traces: readonly Trace[], { slices }: Cluster): readonly Arrival[] {
  const places = new Map<string, Pick<Arrival, "node" | "pod">>();
  for (const { metadata, endpoints } of slices) {
    for (const { addresses, nodeName, targetRef } of endpoints ?? []) {
      const pod =
        targetRef?.kind === "Pod" ? `${targetRef.namespace ?? metadata.namespace}/${targetRef.name}` : undefined;
      const place = { ...(nodeName === undefined ? {} : { node: nodeName }), ...(pod === undefined ? {} : { pod }) };
      for (const address of addresses ?? []) places.set(address, place);
    }
  }
  const found = new Map<string, Arrival>();
  for (const { outcome } of traces) {
    if (outcome.kind !== "delivered" || !outcome.isTranslated) continue;
    const address = outcome.destination.toString();
    const arrival = { address, port: outcome.port, masqueraded: outcome.isMasqueraded, ...places.get(address) };
    found.set(`${address} ${outcome.port}`, arrival);
  }
  return [...found.values()];
}

/** Notes for the questions that a user is likely to have next. */
function* notesOn({ packet }: QuestionPacket, { outcome, steps }: Trace, plan: NodePlan): Generator<string> {
  const { options, tracker, wanted, nodePortAddresses } = plan;
  if (options.detector === undefined && !options.masqueradeAll) {
    yield "packets of pods cannot be recognized: pass the proxy's --cluster-cidr, or its --config";
  }
  if (steps.some(({ chain }) => /^(np-)?aff-/.test(chain))) {
    yield "the Service has session affinity: this is the result for a new client";
  }
  const isOwnAddress = plan.addresses.some((own) => own.equals(packet.destination));
  const nodePortId = frontEndId({ key: portBytes(packet.protocol, packet.port), isNodePort: true });
  const key = addressKey(packet.destination, packet.protocol, packet.port);
  const ids = new Set([frontEndId({ key, isNodePort: false }), ...(isOwnAddress ? [nodePortId] : [])]);
  for (const { frontEnd, service, holder, owner } of wanted.lostFrontEnds()) {
    if (!ids.has(frontEndId(frontEnd))) continue;
    const why = owner === undefined ? `the address belongs to Service ${holder}` : `the address belongs to ${owner}`;
    yield `Service ${service} requests the same address and port, and does not get it: ${why}`;
  }
  if (plan.unlessListened.has(key)) {
    yield "the address is a node's: the Service gets it only if no socket of this node listens on this port (ss -ltunp); explain does not ask the node";
  }
  if (outcome.kind === "delivered" && outcome.isTranslated) return;
  const nodePort = wanted.frontEnd(nodePortId);
  if (outcome.kind === "delivered" && nodePort !== undefined && isOwnAddress) {
    const places = nodePortAddresses.length === 0 ? "none of this node's addresses" : nodePortAddresses.join(", ");
    yield `${packet.port} is a NodePort of ${nodePort.service}, accepted on ${places} (--nodeport-addresses)`;
  }
  for (const [service, elements] of plan.tooLarge) {
    const ports = tracker.services.get(service) ?? [];
    if (ports.some((port) => isFrontEndOf(port, packet, isOwnAddress)))
      yield `Service ${service} has no rules: ${tooLargeText(plan.family, elements)} (Event ServiceTooLarge)`;
  }
  for (const [service, ports] of tracker.services) {
    const [one] = ports;
    if (one === undefined || !one.clusterIP.equals(packet.destination) || plan.tooLarge.has(service)) continue;
    const isPort = ports.some(({ port, protocol }) => port === packet.port && protocol === packet.protocol);
    if (!isPort) yield `Service ${service} has this cluster IP, and these ports: ${ports.map(portText).join(", ")}`;
    else yield* endpointNotes(service, tracker);
  }
}

/** Pure: returns true if a port of a Service has a front end at the packet's destination. */
function isFrontEndOf(
  { protocol, port, nodePort, clusterIP, externalIPs, loadBalancerIPs }: ServicePort,
  packet: QuestionPacket["packet"],
  isOwnAddress: boolean,
): boolean {
  if (protocol !== packet.protocol) return false;
  if (nodePort > 0 && nodePort === packet.port && isOwnAddress) return true;
  const addresses = [clusterIP, ...externalIPs, ...loadBalancerIPs];
  return port === packet.port && addresses.some((one) => one.equals(packet.destination));
}

const portText = ({ port, protocol }: { readonly port: number; readonly protocol: string }): string =>
  `${port}/${protocol}`;

/** Numbers of endpoints, for a Service that does not answer. */
function* endpointNotes(service: string, tracker: NodePlan["tracker"]): Generator<string> {
  for (const { port, endpoints } of tracker.ports(service)) {
    const count = (is: (endpoint: (typeof endpoints)[number]) => boolean): number => endpoints.filter(is).length;
    const ready = count((one) => one.ready);
    const local = count((one) => one.isLocal);
    yield `${servicePortId(port)} has ${endpoints.length} endpoints: ${ready} ready, ${local} on this node`;
  }
}
