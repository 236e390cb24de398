import * as v from "valibot";
import { Cidr, IpAddress } from "#base/ip";
import { CloudError } from "#cloud/rest";

const text = v.string();
const maybe = <Schema extends v.BaseSchema<unknown, unknown, v.BaseIssue<unknown>>>(schema: Schema) =>
  v.optional(v.nullable(schema));
/** Names and ids are put into paths and queries, so a server that answers with something else is not followed. */
const id = v.pipe(text, v.regex(/^[A-Za-z0-9_-]{1,64}$/, "is not an id"));

/** Parses a CIDR here, before anything is calculated with it. */
const cidr = v.pipe(
  text,
  v.check((one) => Cidr.tryParse(one) !== undefined, "is not a CIDR"),
);
const address = v.pipe(
  text,
  v.check((one) => IpAddress.tryParse(one) !== undefined, "is not an address"),
);

const portSchema = v.pipe(
  v.object({
    id,
    name: maybe(text),
    status: maybe(text),
    network_id: maybe(text),
    project_id: maybe(text),
    mac_address: maybe(text),
    fixed_ips: maybe(v.array(v.object({ subnet_id: text, ip_address: text }))),
    device_id: maybe(text),
    device_owner: maybe(text),
    description: maybe(text),
    created_at: maybe(text),
    revision_number: maybe(v.number()),
    admin_state_up: maybe(v.boolean()),
    security_groups: maybe(v.array(text)),
    port_security_enabled: maybe(v.boolean()),
    tags: maybe(v.array(text)),
    "binding:host_id": maybe(text),
    "binding:vif_type": maybe(text),
    "binding:vnic_type": maybe(text),
    "binding:vif_details": maybe(v.record(text, v.unknown())),
  }),
  v.transform((port) => ({
    id: port.id,
    name: port.name ?? "",
    status: port.status ?? "",
    networkId: port.network_id ?? "",
    projectId: port.project_id ?? "",
    mac: port.mac_address ?? "",
    fixedIps: (port.fixed_ips ?? []).map((one) => ({ subnetId: one.subnet_id, ip: one.ip_address })),
    deviceId: port.device_id ?? "",
    deviceOwner: port.device_owner ?? "",
    description: port.description ?? "",
    /** An instant of ISO 8601, or empty. */
    createdAt: port.created_at ?? "",
    revision: port.revision_number ?? undefined,
    isAdminUp: port.admin_state_up ?? true,
    securityGroups: port.security_groups ?? [],
    tags: port.tags ?? [],
    /** The host of the binding; empty if the port is not bound, or the caller may not see it. */
    host: port["binding:host_id"] ?? "",
    /** `unbound`, `binding_failed`, `ovs`, …; empty if the caller may not see it. */
    vifType: port["binding:vif_type"] ?? "",
    vifDetails: vifDetails(port["binding:vif_details"] ?? {}),
  })),
);

/** A port of Neutron. Fields that were not asked for, or that the caller may not see, are empty. */
export type NeutronPort = v.InferOutput<typeof portSchema>;

/** The details by which an agent describes how a port is plugged. */
export interface VifDetails {
  /** True if a Linux bridge is needed between port and Open vSwitch; absent in old servers. */
  readonly ovsHybridPlug?: boolean;
  readonly bridgeName?: string;
  readonly datapathType?: string;
  readonly portFilter?: boolean;
}

function vifDetails(details: Readonly<Record<string, unknown>>): VifDetails {
  const flag = (value: unknown): boolean | undefined => (typeof value === "boolean" ? value : undefined);
  const word = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);
  const found = {
    ovsHybridPlug: flag(details["ovs_hybrid_plug"]),
    bridgeName: word(details["bridge_name"]),
    datapathType: word(details["datapath_type"]),
    portFilter: flag(details["port_filter"]),
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

const networkSchema = v.pipe(
  v.object({
    id,
    name: maybe(text),
    project_id: maybe(text),
    mtu: maybe(v.number()),
    subnets: maybe(v.array(text)),
    shared: maybe(v.boolean()),
  }),
  v.transform((network) => ({
    id: network.id,
    name: network.name ?? "",
    projectId: network.project_id ?? "",
    /** Bytes; 1500 if the server does not say. */
    mtu: network.mtu ?? 1500,
    subnetIds: network.subnets ?? [],
  })),
);
/** A network of Neutron. */
export type NeutronNetwork = v.InferOutput<typeof networkSchema>;

const subnetSchema = v.pipe(
  v.object({
    id,
    name: maybe(text),
    network_id: text,
    cidr,
    ip_version: v.picklist([4, 6]),
    gateway_ip: maybe(address),
    dns_nameservers: maybe(v.array(text)),
    host_routes: maybe(v.array(v.object({ destination: text, nexthop: text }))),
    ipv6_address_mode: maybe(text),
    ipv6_ra_mode: maybe(text),
    allocation_pools: maybe(v.array(v.object({ start: address, end: address }))),
    enable_dhcp: maybe(v.boolean()),
  }),
  v.transform((subnet) => ({
    id: subnet.id,
    name: subnet.name ?? "",
    networkId: subnet.network_id,
    cidr: subnet.cidr,
    ipVersion: subnet.ip_version,
    gateway: subnet.gateway_ip ?? undefined,
    nameservers: subnet.dns_nameservers ?? [],
    routes: (subnet.host_routes ?? []).map(({ destination, nexthop }) => ({ dst: destination, via: nexthop })),
    /** True if each port of the network gets an address of it, which follows from its MAC. */
    isAutomatic: [subnet.ipv6_address_mode, subnet.ipv6_ra_mode].some(
      (mode) => mode === "slaac" || mode === "dhcpv6-stateless",
    ),
    /** The ranges from which ports get addresses; empty if the server does not say. */
    pools: subnet.allocation_pools ?? [],
  })),
);
/** A subnet of Neutron. */
export type NeutronSubnet = v.InferOutput<typeof subnetSchema>;

const securityGroupSchema = v.pipe(
  v.object({ id, name: maybe(text), project_id: maybe(text) }),
  v.transform((group) => ({ id: group.id, name: group.name ?? "", projectId: group.project_id ?? "" })),
);
/** A security group of Neutron. */
export type NeutronSecurityGroup = v.InferOutput<typeof securityGroupSchema>;

const agentSchema = v.pipe(
  v.object({ id, host: text, binary: maybe(text), agent_type: maybe(text), alive: maybe(v.boolean()) }),
  v.transform((agent) => ({
    id: agent.id,
    host: agent.host,
    kind: agent.agent_type ?? agent.binary ?? "",
    isAlive: agent.alive === true,
  })),
);
/** An agent of Neutron on a host. */
export type NeutronAgent = v.InferOutput<typeof agentSchema>;

const quotaSchema = v.object({
  port: v.pipe(
    v.object({ limit: v.number(), used: v.number(), reserved: maybe(v.number()) }),
    v.transform(({ limit, used, reserved }) => ({
      limit: limit < 0 ? undefined : limit,
      used: used + (reserved ?? 0),
    })),
  ),
});
/** The ports that a project may have; `limit` is `undefined` without a limit. */
export type NeutronQuota = v.InferOutput<typeof quotaSchema>["port"];

const rbacPolicySchema = v.object({ id });

const extensionSchema = v.object({ alias: text });

/** The readers of what Neutron answers, and clouds that have its objects; each throws `bad-response` for anything else. */
export const read = {
  port: reader("port", portSchema),
  ports: listReader("ports", portSchema),
  networks: listReader("networks", networkSchema),
  subnets: listReader("subnets", subnetSchema),
  securityGroups: listReader("security_groups", securityGroupSchema),
  rbacPolicies: listReader("rbac_policies", rbacPolicySchema),
  agents: listReader("agents", agentSchema),
  extensions: listReader("extensions", extensionSchema),
  quota: reader("quota", quotaSchema),
} as const;

const linkSchema = v.object({ rel: v.literal("next") });

/** Returns true if an answer with a list says that there are more objects: `{"ports": […], "ports_links": [{"rel": "next", …}]}`. */
export function hasNextPage(body: unknown): boolean {
  if (typeof body !== "object" || body === null) return false;
  return Object.entries(body).some(
    ([key, links]) => key.endsWith("_links") && Array.isArray(links) && links.some((link) => v.is(linkSchema, link)),
  );
}

type AnySchema = v.BaseSchema<unknown, unknown, v.BaseIssue<unknown>>;

function reader<Schema extends AnySchema>(key: string, schema: Schema): (body: unknown) => v.InferOutput<Schema> {
  return (body) => {
    const value = typeof body === "object" && body !== null ? (body as Record<string, unknown>)[key] : undefined;
    const result = v.safeParse(schema, value);
    if (result.success) return result.output;
    const [issue] = result.issues;
    const path = [key, v.getDotPath(issue)].filter((part) => part !== null).join(".");
    throw new CloudError("bad-response", `the answer is not what the API promises: ${path}: ${issue.message}`);
  };
}

function listReader<Schema extends AnySchema>(
  key: string,
  schema: Schema,
): (body: unknown) => readonly v.InferOutput<Schema>[] {
  return reader(key, v.array(schema));
}
