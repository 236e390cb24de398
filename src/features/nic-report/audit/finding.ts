/** The kinds of findings about NICs, each with what disagrees. They do not change between versions, so that scripts can use them. */
export const NIC_FINDINGS = {
  "nic-wish": "a pod asks for NICs that it cannot have, and was stored all the same",
  "nic-claim-missing": "a pod asks for NICs and has no NicClaim",
  "nic-claim-leftover": "a NicClaim belongs to a pod that does not exist",
  "nic-claim-spec": "a NicClaim has another VPC or other NICs than its pod asks for",
  "nic-claim-node": "a NicClaim names another node than its pod has",
  "nic-shown": "a pod shows another state of its NICs than its NicClaim has",
  "nic-claim-memory": "nic-agent and the API server have different NicClaims of the node",
  "nic-port-missing": "a NicClaim names a port that the provider does not have",
  "nic-port-differs": "a port has another device, host, network, address or status than its NicClaim says",
  "nic-port-double": "a NIC has two ports, or two NICs have one",
  "nic-port-unrecorded": "a port was made for a NIC whose NicClaim does not name it",
  "nic-port-orphan": "a port of this cluster belongs to no NicClaim and no pod",
  "nic-unplugged": "a pod runs, or its NicClaim says that it is plugged, and its node has plugged nothing",
  "nic-report": "a node has plugged the NICs of a pod, and its NicClaim does not say so",
  "nic-journal-stray": "the journal of a node has NICs of a pod that has no NicClaim there",
  "nic-journal-differs":
    "the journal of a node and the NicClaim have different ports, addresses, MAC addresses or MTUs",
  "nic-device-lacks": "a device of a NIC is missing on its node, is down, or is in no bridge or another one",
  "nic-device-stray": "a device on a node has our mark, and no NIC needs it",
  "nic-switch": "the database of Open vSwitch does not answer, or an integration bridge is missing",
  "nic-switch-lacks": "the integration bridge lacks the port of a NIC, has it with other ids, or does not serve it",
  "nic-switch-stray": "the switch has a port of a NIC that the journal does not know",
  "nic-sandbox":
    "the network namespace of a pod's NICs is missing, or lacks an interface, address, route or rule of them, or has one too many",
} as const;

/** One difference of NICs; `text` is a sentence for operators. */
export interface NicFinding {
  readonly kind: keyof typeof NIC_FINDINGS;
  readonly node: string | undefined;
  readonly text: string;
}
