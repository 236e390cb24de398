import { systemClock } from "#base/clock";
import { ConfigError, listFlag, optionalFlag, parseFlags, stringFlag, switchFlag } from "#base/config";
import { IpAddress } from "#base/ip";
import { type Explanation, explainPacket, parseQuestion, QUESTION_USAGE, type Question } from "#features/service-proxy";
import { openClient } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import { serviceProxyConfig, serviceProxyFlags } from "../../shared/service-proxy-config/index.ts";
import { clusterConfig, PROXYS_FLAGS } from "./cluster-config.ts";
import { PodWays, readQuestionPod } from "./pod-way.ts";
import { answerJson, answerText, followPod, type WholeAnswer } from "./whole-answer.ts";

/** The flags of the proxy that affect the destination of a packet. */
const { kubeconfig, config, bindAddress, nodePortAddresses, detectLocalMode, clusterCIDR } = serviceProxyFlags;
const { podBridgeInterface, podInterfaceNamePrefix, masqueradeAll, masqueradeBit, featureGates, tableName } =
  serviceProxyFlags;
const { serviceAddresses, hostPorts } = serviceProxyFlags;

const flags = {
  node: stringFlag(
    "node",
    "",
    "the node whose proxy is meant; default: the node of the sending pod, else this host",
    "NAME",
  ),
  json: switchFlag("json", false, "print one JSON object"),
  answer: switchFlag(
    "answer",
    false,
    "the packet answers a connection that came in by the pod's interface (originatingOnly)",
  ),
  localAddresses: listFlag("local-address", "an address of the node that its Node object does not list", "ADDRESS"),
  kubeconfig,
  config,
  bindAddress,
  nodePortAddresses,
  detectLocalMode,
  clusterCIDR,
  podBridgeInterface,
  podInterfaceNamePrefix,
  masqueradeAll,
  masqueradeBit,
  featureGates,
  tableName,
  serviceAddresses,
  hostPorts,
  nicSocket: stringFlag("nic-socket", "/run/isthmus/vpc.sock", "NICs of a pod: socket of the node's nic-agent", "PATH"),
  nicCredentials: optionalFlag(
    "nic-credentials",
    "NICs of a pod: credentials of their providers, as nic-controller has them; ports are asked for their status and security groups",
    "PATH",
  ),
};

/**
 * `isthmus explain`: where a packet goes, and the rules that decide it: in its pod, at the service proxy of its node, and at a router; and the NICs of
 * a pod.
 */
export const explain = defineProgram({
  name: "explain",
  summary:
    "Shows where a packet goes and what decides it: rules, routes and tunnel in the pod that sends it, the service proxy of the node, and the router of an Egress; and the way of a pod's NICs of a VPC.",
  words: { usage: `${QUESTION_USAGE} | pod:NAMESPACE/NAME`, max: 3 },
  flags,
  notes: [
    "SOURCE is an address, pod:NAMESPACE/NAME, node or outside; DESTINATION an address or service:NAMESPACE/NAME, which is its cluster IP.",
    "It reads Services, EndpointSlices, Nodes and ServiceCIDRs and computes the rules as the proxy does: pass the flags or the --config of the node's proxy; without any it takes the configuration of the ConfigMap isthmus-service-proxy or kube-proxy in kube-system, if it may read it. It sends no request to the node.",
    "With pod: on the pod's node, as root, it also reads the rules, routes and tunnels in the pod's network namespace and asks the kernel for the route. A pod that names an Egress is explained only there. It then reads the pod, Egresses and their Services.",
    "pod:NAMESPACE/NAME alone asks for the pod's NICs of a VPC: the port of each, its security groups as far as the port tells them, its binding, and on the pod's node, as root, its devices, routes and rules. Elsewhere routes and rules are those that the NicClaim leads to. It reads the pod and its NicClaim; with --nic-credentials, on an administrator's machine, also the provider's ports.",
    "Exit code: 0 when it answered, 1 when the API server was not reached or lacks a named object, or the pod's namespace is not here, 2 when the arguments are wrong.",
  ],
  run: async ({ values, given, words, signal }) => {
    const [only = ""] = words;
    if (words.length === 1 && only.startsWith("pod:")) {
      // It needs other parts than the question about a packet.
      const { explainPodNics } = await import("./nics.ts");
      process.stdout.write(await explainPodNics(only, values, { signal }));
      return EXIT.ok;
    }
    const question = parseQuestion(words);
    const { source } = question;
    if (values.answer && source.kind !== "pod")
      throw new ConfigError("invalid-flags", ["--answer: the source must be a pod, as pod:NAMESPACE/NAME"]);
    const localAddresses = values.localAddresses.map(parseLocalAddress);
    const {
      node,
      json: _json,
      answer: isAnswer,
      localAddresses: _texts,
      nicSocket: _socket,
      nicCredentials: _file,
      ...own
    } = values;
    const defaults = parseFlags(serviceProxyFlags, []).values;
    const proxyValues = { ...defaults, ...own, hostnameOverride: node };
    const byFlags = serviceProxyConfig(proxyValues);
    // The proxy's file names the proxy's kubeconfig. A kubeconfig that is given to `explain` takes precedence.
    await using api = await openClient(
      "explain",
      { kubeconfig: values.kubeconfig ?? byFlags.kubeconfig },
      { clock: systemClock },
    );
    // Without a flag of the proxy its ConfigMap is as good as its --config.
    const isSilent = [...given].every((name) => !PROXYS_FLAGS.has(name));
    const { config, notes } = (isSilent ? await clusterConfig(api, proxyValues, { signal }) : undefined) ?? {
      config: byFlags,
      notes: [],
    };
    const onNode = async (asked: Question): Promise<Explanation> => {
      const found = await explainPacket(api, asked, { config, followsPod: node === "", localAddresses, signal });
      return { ...found, notes: [...found.notes, ...notes] };
    };
    const explanation = await onNode(question);
    const pod = source.kind === "pod" ? await readQuestionPod(api, source.ref, { signal }) : undefined;
    const answer: WholeAnswer =
      pod === undefined
        ? { explanation }
        : await followPod(new PodWays({ api, thisNode: config.nodeName }), pod, {
            question,
            explanation,
            onNode,
            isAnswer,
            signal,
          });
    process.stdout.write(values.json ? `${JSON.stringify(answerJson(answer))}\n` : answerText(answer));
    return EXIT.ok;
  },
});

function parseLocalAddress(text: string): IpAddress {
  const address = IpAddress.tryParse(text);
  if (address === undefined) throw new ConfigError("invalid-flags", [`--local-address: "${text}" is not an address`]);
  return address;
}
