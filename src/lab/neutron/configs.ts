import { createHash } from "node:crypto";
import { ovnConfig } from "./ovn.ts";

/** The broker's user. Nobody outside of the namespaces reaches it. */
const BROKER = { user: "openstack", password: "testing", port: 5672 } as const;
/** The database's name, user and password. */
export const DATABASE = { name: "neutron", user: "neutron", password: "testing", port: 3306 } as const;
/** The port of Neutron's API. */
export const API_PORT = 9696;
/** The longest time without a report after which Neutron takes an agent for dead, in seconds. */
export const AGENT_DOWN_SECONDS = 10;
/**
 * The time of one OpenFlow request of an agent, in seconds. A request during which the switch ends is sent again by Neutron's agent as the same
 * message, which os-ken refuses without an answer (`assert self.xid is None`); the agent then stands still for this time. Its default is 300.
 */
const OPENFLOW_SECONDS = 10;
/** Queues that agents send to. They are there before Neutron is, so that no message of an agent that starts first is lost. */
const QUEUES = ["q-plugin", "q-reports-plugin", "q-server-resource-versions"] as const;
/** Sections of oslo.privsep's helpers, each of which would be started by sudo otherwise. */
const PRIVSEP_SECTIONS = ["", "_dhcp_release", "_ovs_vsctl", "_namespace", "_conntrack", "_link"] as const;

/** The way in which the agent of a host applies security groups. `iptables_hybrid` filters at a Linux bridge between the pod and the switch. */
export type FirewallDriver = "openvswitch" | "iptables_hybrid";
/** The program that sets up the switches: Neutron's own agents, or OVN. */
export type MechanismDriver = "openvswitch" | "ovn";

/** Pure: the URL of the broker at an address. */
function brokerUrl(address: string): string {
  return `rabbit://${BROKER.user}:${BROKER.password}@${address}:${BROKER.port}/`;
}

/** Pure: rabbitmq.conf. */
export function brokerConfig(definitions: string): string {
  return `listeners.tcp.1 = 0.0.0.0:${BROKER.port}
distribution.listener.interface = 127.0.0.1
loopback_users = none
disk_free_limit.absolute = 1MB
load_definitions = ${definitions}
log.console = true
log.file = false
`;
}

/** Pure: the user, and the queues of {@link QUEUES}, as RabbitMQ reads them at its start. */
export function brokerDefinitions(): string {
  const salt = Buffer.from("isth");
  const digest = createHash("sha256")
    .update(Buffer.concat([salt, Buffer.from(BROKER.password)]))
    .digest();
  const lasting = { vhost: "/", durable: false, auto_delete: false, arguments: {} };
  return JSON.stringify({
    vhosts: [{ name: "/" }],
    users: [
      {
        name: BROKER.user,
        password_hash: Buffer.concat([salt, digest]).toString("base64"),
        hashing_algorithm: "rabbit_password_hashing_sha256",
        tags: "",
      },
    ],
    permissions: [{ user: BROKER.user, vhost: "/", configure: ".*", write: ".*", read: ".*" }],
    exchanges: [{ ...lasting, name: "neutron", type: "topic", internal: false }],
    queues: QUEUES.map((name) => ({ ...lasting, name })),
    bindings: QUEUES.map((name) => ({
      source: "neutron",
      vhost: "/",
      destination: name,
      destination_type: "queue",
      routing_key: name,
      arguments: {},
    })),
  });
}

/** OVN's driver counts the workers that share the events of its databases, and takes no event in a server without one. */
const API_WORKERS: Readonly<Record<MechanismDriver, number>> = { openvswitch: 0, ovn: 1 };

/** Pure: neutron.conf of the server. */
export function serverConfig({
  folder,
  quota,
  driver = "openvswitch",
}: {
  readonly folder: string;
  readonly quota: number;
  readonly driver?: MechanismDriver;
}): string {
  return `[DEFAULT]
bind_host = 0.0.0.0
bind_port = ${API_PORT}
auth_strategy = noauth
core_plugin = ml2
service_plugins = revisions,timestamp,tag
api_paste_config = /etc/neutron/api-paste.ini
transport_url = ${brokerUrl("127.0.0.1")}
api_workers = ${API_WORKERS[driver]}
rpc_workers = 1
rpc_state_report_workers = 0
agent_down_time = ${AGENT_DOWN_SECONDS}
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dhcp_agent_notification = false
state_path = ${folder}/lib
[database]
connection = ${databaseUrl("127.0.0.1")}
[oslo_messaging_rabbit]
rabbit_retry_backoff = 0
[oslo_concurrency]
lock_path = ${folder}/lock
[quotas]
quota_port = ${quota}
quota_security_group_rule = -1
`;
}

/** Pure: the URL of the database for SQLAlchemy; `query` names a socket, for example. */
export function databaseUrl(host: string, query = ""): string {
  return `mysql+pymysql://${DATABASE.user}:${DATABASE.password}@${host}/${DATABASE.name}${query}`;
}

/** Pure: ml2.ini of the server. */
export function ml2Config(driver: MechanismDriver = "openvswitch"): string {
  const type = driver === "ovn" ? "geneve" : "vxlan";
  return `[ml2]
type_drivers = local,flat,${type}
tenant_network_types = ${type}
mechanism_drivers = ${driver}
extension_drivers = port_security${driver === "ovn" ? "" : ",tag_ports_during_bulk_creation"}
[ml2_type_${type}]
vni_ranges = 1:1000
${driver === "ovn" ? "max_header_size = 38\n" : ""}[securitygroup]
enable_security_group = true
enable_ipset = false
${driver === "ovn" ? ovnConfig() : ""}`;
}

/** The place of one agent. */
export interface AgentPlace {
  readonly host: string;
  /** Folder of its state and locks. */
  readonly folder: string;
  /** The path of the file with this text. */
  readonly file: string;
  /** The broker's address. */
  readonly broker: string;
  /** The host's address in tunnels. */
  readonly tunnelAddress: string;
  /** The socket of the host's switch database. */
  readonly ovsdb: string;
  readonly firewall: FirewallDriver;
}

/** Pure: the file of `neutron-openvswitch-agent`. */
export function agentConfig(place: AgentPlace): string {
  const { host, folder, file, broker, tunnelAddress, ovsdb, firewall } = place;
  const helpers = PRIVSEP_SECTIONS.map(
    (context) => `[privsep${context}]\nhelper_command = privsep-helper --config-file ${file}\n`,
  );
  return `[DEFAULT]
host = ${host}
state_path = ${folder}
transport_url = ${brokerUrl(broker)}
[oslo_messaging_rabbit]
rabbit_retry_backoff = 0
[oslo_concurrency]
lock_path = ${folder}
[agent]
tunnel_types = vxlan
polling_interval = 1
report_interval = 2
root_helper =
[ovs]
integration_bridge = br-int
tunnel_bridge = br-tun
local_ip = ${tunnelAddress}
datapath_type = netdev
ovsdb_connection = unix:${ovsdb}
of_listen_address = 127.0.0.1
of_request_timeout = ${OPENFLOW_SECONDS}
[securitygroup]
enable_security_group = true
firewall_driver = ${firewall}
enable_ipset = false
${helpers.join("")}`;
}
