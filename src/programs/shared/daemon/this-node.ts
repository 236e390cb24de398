import { ConfigError } from "#base/config";
import { IpAddress } from "#base/ip";
import type { Node } from "#kube/client";
import { MAX_LABEL_VALUE_LENGTH } from "#kube/coil";

/** The name of the node that this process runs on. Throws `ConfigError` if the name is not given or cannot be a label value. */
export function requireNodeName(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const name = env["COIL_NODE_NAME"] ?? "";
  if (name === "") {
    throw new ConfigError("invalid-flags", [
      "the environment variable COIL_NODE_NAME is missing; set it to the name of this node",
    ]);
  }
  if (name.length > MAX_LABEL_VALUE_LENGTH) {
    const fault = `the node name ${name} has ${name.length} characters; blocks have this name as a label, so at most ${MAX_LABEL_VALUE_LENGTH} are possible`;
    throw new ConfigError("invalid-flags", [fault]);
  }
  return name;
}

/** The node's InternalIP addresses: the last of each family. */
export function internalAddresses(node: Pick<Node, "status">): {
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
} {
  const parsed = (node.status?.addresses ?? [])
    .filter((entry) => entry.type === "InternalIP")
    .flatMap((entry) => IpAddress.tryParse(entry.address) ?? []);
  return {
    ipv4: parsed.findLast((address) => address.family === 4),
    ipv6: parsed.findLast((address) => address.family === 6),
  };
}
