import { systemClock } from "#base/clock";
import { ConfigError, listFlag, parseFlags, stringFlag, switchFlag } from "#base/config";
import { IpAddress } from "#base/ip";
import { explainPacket, explanationText, parseQuestion, QUESTION_USAGE } from "#features/service-proxy";
import { openClient } from "./daemon/index.ts";
import { defineProgram, EXIT } from "./program/index.ts";
import { serviceProxyConfig, serviceProxyFlags } from "./service-proxy-config/index.ts";

/** The flags of the proxy that affect the destination of a packet. */
const { kubeconfig, config, bindAddress, nodePortAddresses, detectLocalMode, clusterCIDR } = serviceProxyFlags;
const { podBridgeInterface, podInterfaceNamePrefix, masqueradeAll, masqueradeBit, featureGates, tableName } =
  serviceProxyFlags;

const flags = {
  node: stringFlag(
    "node",
    "",
    "the node whose proxy is meant; default: the node of the sending pod, else this host",
    "NAME",
  ),
  json: switchFlag("json", false, "print one JSON object"),
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
};

/** `isthmus explain`: the endpoint to which a packet goes, and the rule and element that decide it. */
export const explain = defineProgram({
  name: "explain",
  summary:
    "Shows the endpoint to which a node's service proxy sends a packet, and the rule and element that decide it.",
  words: { usage: QUESTION_USAGE, max: 3 },
  flags,
  notes: [
    "SOURCE is an address, pod:NAMESPACE/NAME, node or outside; DESTINATION an address or service:NAMESPACE/NAME, which is its cluster IP.",
    "It reads Services, EndpointSlices, Nodes and ServiceCIDRs and computes the rules as the proxy does: pass the flags or the --config of the node's proxy. It sends no request to the node.",
    "Exit code: 0 when it answered, 1 when the API server was not reached or lacks a named object, 2 when the arguments are wrong.",
  ],
  run: async ({ values, words, signal }) => {
    const question = parseQuestion(words);
    const localAddresses = values.localAddresses.map(parseLocalAddress);
    const { node, json: _json, localAddresses: _texts, ...own } = values;
    const defaults = parseFlags(serviceProxyFlags, []).values;
    const config = serviceProxyConfig({ ...defaults, ...own, hostnameOverride: node });
    // The proxy's file names the proxy's kubeconfig. A kubeconfig that is given to `explain` takes precedence.
    await using api = await openClient(
      "explain",
      { kubeconfig: values.kubeconfig ?? config.kubeconfig },
      { clock: systemClock },
    );
    const explanation = await explainPacket(api, question, {
      config,
      followsPod: node === "",
      localAddresses,
      signal,
    });
    process.stdout.write(values.json ? `${JSON.stringify(explanation)}\n` : explanationText(explanation));
    return EXIT.ok;
  },
});

function parseLocalAddress(text: string): IpAddress {
  const address = IpAddress.tryParse(text);
  if (address === undefined) throw new ConfigError("invalid-flags", [`--local-address: "${text}" is not an address`]);
  return address;
}
