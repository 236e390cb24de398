import { type NeutronNetwork, type NeutronPort, type NeutronSubnet, read } from "#cloud/neutron";

type Fields = Readonly<Record<string, unknown>>;

/** A port of Alcor: one of Neutron, and the device that the agent of its host makes. */
export interface AlcorPort extends NeutronPort {
  /** Empty if there is none. */
  readonly vethName: string;
  /** The path of the network namespace; empty if there is none. */
  readonly networkNs: string;
}

/** The port of `{"port": …}`. Throws `bad-response`. */
export function readPort(body: unknown): AlcorPort {
  const fields = fieldsOf(fieldsOf(body)["port"]);
  return withDevice(read.port({ port: asNeutron(fields) }), fields);
}

/** The ports of `{"ports": …}`. Throws `bad-response`. */
export function readPorts(body: unknown): readonly AlcorPort[] {
  const list = listOf(body, "ports");
  return read.ports({ ports: list.map(asNeutron) }).map((port, at) => withDevice(port, list[at] ?? {}));
}

/** The VPCs of `{"vpcs": …}`, or `{"networks": …}` of current versions. Throws `bad-response`. */
export function readVpcs(body: unknown): readonly NeutronNetwork[] {
  const key = "vpcs" in fieldsOf(body) ? "vpcs" : "networks";
  return read.networks({ networks: fieldsOf(body)[key] });
}

/** The subnets of `{"subnets": …}`; of a gateway that is an empty text there is none. Throws `bad-response`. */
export function readSubnets(body: unknown): readonly NeutronSubnet[] {
  const subnets = listOf(body, "subnets").map((subnet) => ({
    ...asNeutron(subnet),
    gateway_ip: subnet["gateway_ip"] === "" ? null : subnet["gateway_ip"],
  }));
  return read.subnets({ subnets });
}

/** Older texts have `vpc_id` for `network_id`; the time of creation has a name of its own. */
function asNeutron(fields: Fields): Fields {
  return {
    ...fields,
    network_id: fields["network_id"] ?? fields["vpc_id"],
    created_at: fields["created_at"] ?? fields["create_at"],
  };
}

function withDevice(port: NeutronPort, fields: Fields): AlcorPort {
  const text = (value: unknown): string => (typeof value === "string" ? value : "");
  return { ...port, vethName: text(fields["veth_name"]), networkNs: text(fields["network_ns"]) };
}

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

/** Returns the list in the body; the reader gets any other value as it is and names the fault. */
function listOf(body: unknown, key: string): readonly Fields[] {
  const value = fieldsOf(body)[key];
  return (Array.isArray(value) ? value : [value]).map(fieldsOf);
}
