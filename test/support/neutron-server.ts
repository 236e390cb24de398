/**
 * A real Neutron on loopback from Debian's package `neutron-server`, with SQLite and without a broker or an agent: all of its API, and
 * every binding fails (docs/spec/vpc-nics.md#13, tier A; with Keystone, tier C).
 *
 * Owns: the process, its folder and database. Does not know: what is tested.
 *
 * ```ts
 * await using neutron = await NeutronServer.start();
 * const { id } = await neutron.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
 * ```
 */
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { NeutronApi } from "#lab/neutron";
import { KEYSTONE_ADMIN, type KeystoneServer } from "#test/keystone-server";
import { freePort } from "#test/ports";
import { keptTemplate, OpenStackProcess, runPython } from "./openstack-process.ts";

const SERVER = "/usr/bin/neutron-server";
/** Times of an agent, as the database has them. */
const STARTED = "2020-01-01 00:00:00.000000";
const NEVER_DEAD = "2099-01-01 00:00:00.000000";
/** The time for which a request waits for another one's write, in seconds. After 5, the default, a busy machine's Neutron answers 500. */
const LOCK_S = 60;
/** The copy of the database. */
const COPY = "copy.sqlite";
/** Tables from the models: the migrations alter constraints, which SQLite cannot. */
const MAKE_TABLES =
  "import sqlalchemy as sa,sys; from neutron.db.migration.models import head; head.get_metadata().create_all(sa.create_engine(sys.argv[1]))";

export interface NeutronServerOptions {
  /** True if tags in a request that creates several ports are kept. Default true. */
  readonly tagsOnCreate?: boolean;
  /** Ports that a project can have. Default 500. */
  readonly quota?: number;
  /** Objects in one answer at most, whatever is asked for (`pagination_max_limit`). Default: no limit. */
  readonly pageLimit?: number;
  /** The Keystone that has its users; Neutron is added to the catalogue, and has the rules that are the default since 2023.2. Without one every request is the administrator's. */
  readonly keystone?: KeystoneServer;
  /** The text of its policy file. */
  readonly policy?: string;
}

/** Disposing ends the process and removes its folder. */
export class NeutronServer extends NeutronApi implements AsyncDisposable {
  readonly folder: string;
  readonly #process: OpenStackProcess;
  readonly #keystone: KeystoneServer | undefined;
  #policyTime = Math.ceil(Date.now() / 1000);

  private constructor(url: URL, folder: string, argv: readonly string[], keystone: KeystoneServer | undefined) {
    super(url);
    this.#keystone = keystone;
    this.folder = folder;
    this.#process = new OpenStackProcess({ name: "Neutron", folder, argv, url });
  }

  /** Resolves when it answers, which takes 5 to 10 s, the first time on a machine 15 s. */
  static async start(options: NeutronServerOptions = {}): Promise<NeutronServer> {
    if (!existsSync(SERVER))
      throw new Error(`no ${SERVER}: ./run test neutron installs Debian's package neutron-server`);
    const folder = mkdtempSync(join(tmpdir(), "isthmus-neutron-"));
    const port = await freePort();
    for (const name of ["lib", "lock"]) mkdirSync(join(folder, name));
    writeFileSync(join(folder, "neutron.conf"), mainConfig(folder, port, options));
    writeFileSync(join(folder, "ml2.ini"), ml2Config(options));
    const config = ["neutron.conf", "ml2.ini"].flatMap((name) => ["--config-file", join(folder, name)]);
    copyFileSync(await template(config), join(folder, "lib/neutron.sqlite"));
    const { keystone, policy = "" } = options;
    writeFileSync(join(folder, "policy.yaml"), policy);
    const server = new NeutronServer(new URL(`http://127.0.0.1:${port}`), folder, [SERVER, ...config], keystone);
    try {
      await keystone?.addService("network", server.url);
      await server.#process.start();
      server.remember();
      return server;
    } catch (error) {
      await server[Symbol.asyncDispose]();
      throw error;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#process[Symbol.asyncDispose]();
  }

  /** Ends the process; its database stays. */
  stop(): Promise<void> {
    return this.#process.stop();
  }

  /** Starts the process again after {@link stop}, and resolves when it answers. */
  startAgain(): Promise<void> {
    return this.#process.start();
  }

  protected override async headers(): Promise<Readonly<Record<string, string>>> {
    const token = await this.#keystone?.adminToken();
    return token === undefined ? {} : { "x-auth-token": token };
  }

  /** An agent of a host, as one that has just reported: ports can be bound there; one that is not alive has reported long ago. Nobody plugs anything. */
  addAgent(host: string, { isAlive = true } = {}): void {
    const configurations = {
      tunnel_types: ["vxlan"],
      tunneling_ip: "127.0.0.1",
      bridge_mappings: {},
      datapath_type: "system",
    };
    this.#write(
      `INSERT INTO agents (id, agent_type, binary, topic, host, admin_state_up, created_at, started_at, heartbeat_timestamp, configurations, load)
       VALUES (?, 'Open vSwitch agent', 'neutron-openvswitch-agent', 'N/A', ?, 1, ?, ?, ?, ?, 0)`,
      [crypto.randomUUID(), host, STARTED, STARTED, isAlive ? NEVER_DEAD : STARTED, JSON.stringify(configurations)],
    );
  }

  /** Replaces the policy file, which Neutron reads before the next request. */
  setPolicy(text: string): void {
    const path = join(this.folder, "policy.yaml");
    writeFileSync(path, text);
    // The file is read again when its time is later, in whole seconds.
    this.#policyTime += 10;
    utimesSync(path, this.#policyTime, this.#policyTime);
  }

  /** Keeps a copy of the database as it is, for {@link restore}; at the start it is empty. */
  remember(): void {
    const copy = join(this.folder, COPY);
    rmSync(copy, { force: true });
    this.#write("VACUUM INTO ?", [copy]);
  }

  /**
   * Makes the database what it was at the last {@link remember}. Nobody may be asking the server meanwhile. It is for tests that share one: a
   * start takes four seconds of a processor, the deletion of a port a fifth of one.
   */
  restore(): void {
    const database = new DatabaseSync(join(this.folder, "lib/neutron.sqlite"), { timeout: 20_000 });
    try {
      database.exec("PRAGMA foreign_keys = OFF");
      database.prepare("ATTACH ? AS copy").run(join(this.folder, COPY));
      const tables = database
        .prepare("SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        .all()
        .map(({ name }) => String(name));
      const copies = tables.map(
        (name) => `DELETE FROM main.${name}; INSERT INTO main.${name} SELECT * FROM copy.${name};`,
      );
      database.exec(`BEGIN IMMEDIATE; ${copies.join(" ")} COMMIT`);
    } finally {
      database.close();
    }
  }

  /** Sets the status of a port as an agent does that has plugged or lost it. */
  setStatus(portId: string, status: "ACTIVE" | "DOWN" | "ERROR"): void {
    this.#write("UPDATE ports SET status = ? WHERE id = ?", [status, portId]);
  }

  /** The server may be writing as well, so it waits for its turn. */
  #write(sql: string, values: readonly string[]): void {
    const database = new DatabaseSync(join(this.folder, "lib/neutron.sqlite"), { timeout: 20_000 });
    try {
      database.prepare(sql).run(...values);
    } finally {
      database.close();
    }
  }
}

/** The database with all tables and nothing in them. */
function template(config: readonly string[]): Promise<string> {
  return keptTemplate("neutron-template.sqlite", async (work) => {
    await runPython("-c", MAKE_TABLES, `sqlite:///${work}`);
    const folder = mkdtempSync(join(tmpdir(), "isthmus-neutron-db-"));
    const file = join(folder, "db.conf");
    writeFileSync(file, `[database]\nconnection = sqlite:///${work}\n`);
    await runPython("/usr/bin/neutron-db-manage", ...config, "--config-file", file, "stamp", "heads");
    rmSync(folder, { recursive: true });
  });
}

function mainConfig(folder: string, port: number, { quota = 500, pageLimit, keystone }: NeutronServerOptions): string {
  return `[DEFAULT]
${pageLimit === undefined ? "" : `pagination_max_limit = ${pageLimit}`}
bind_host = 127.0.0.1
bind_port = ${port}
auth_strategy = ${keystone === undefined ? "noauth" : "keystone"}
core_plugin = ml2
service_plugins = revisions,timestamp,tag
api_paste_config = /etc/neutron/api-paste.ini
transport_url = fake://
api_workers = 0
rpc_workers = 0
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dhcp_agent_notification = false
state_path = ${folder}/lib
[database]
connection = sqlite:///${folder}/lib/neutron.sqlite?timeout=${LOCK_S}
[oslo_concurrency]
lock_path = ${folder}/lock
[quotas]
quota_port = ${quota}
[oslo_policy]
policy_file = ${folder}/policy.yaml
enforce_new_defaults = ${keystone !== undefined}
${keystone === undefined ? "" : authConfig(keystone)}`;
}

/** Returns the settings by which it checks tokens. */
function authConfig({ url }: KeystoneServer): string {
  const { username, password } = KEYSTONE_ADMIN;
  return `[keystone_authtoken]
auth_url = ${url.href}
auth_type = password
username = ${username}
password = ${password}
project_name = admin
user_domain_id = default
project_domain_id = default
service_token_roles_required = true
`;
}

function ml2Config({ tagsOnCreate = true }: NeutronServerOptions): string {
  return `[ml2]
type_drivers = local,flat,vxlan
tenant_network_types = vxlan
mechanism_drivers = openvswitch
extension_drivers = ${tagsOnCreate ? "port_security,tag_ports_during_bulk_creation" : "port_security"}
[ml2_type_vxlan]
vni_ranges = 1:1000
[securitygroup]
enable_security_group = true
enable_ipset = false
`;
}
