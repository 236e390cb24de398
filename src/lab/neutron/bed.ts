import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AbortOptions, unlessAborted } from "#base/async";
import { IpAddress } from "#base/ip";
import type { Kernel } from "#kernel/net";
import { OvsProcesses } from "#lab/ovs";
import {
  API_PORT,
  agentConfig,
  brokerConfig,
  brokerDefinitions,
  type FirewallDriver,
  type MechanismDriver,
  ml2Config,
  serverConfig,
} from "./configs.ts";
import { databaseProgram, makeDatabase, writeInit } from "./database.ts";
import { NeutronBedError } from "./errors.ts";
import { centralPrograms, controllerProgram, missingOvnPrograms, OVN_PACKAGES } from "./ovn.ts";
import { Processes, type ProgramSpec, type StartedProgram } from "./processes.ts";
import { missingPrograms, NEUTRON_PACKAGES, PROGRAMS } from "./programs.ts";
import { openRelay, type Relay } from "./relay.ts";
import {
  type FoundProgram,
  joinTunnels,
  type NeutronHostState,
  type NeutronState,
  RunningNeutron,
  type RunningNeutronDeps,
  type StartedPrograms,
  writeState,
} from "./running.ts";
import { supervised } from "./supervised.ts";
import { joinHosts, tunnelAddress } from "./underlay.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");

/** A host of the bed: a network namespace that reaches the cloud's address. */
export interface NeutronBedHost {
  /** Its name at Neutron, by which ports are bound. */
  readonly name: string;
  readonly netns: string;
  /** The firewall driver of Neutron's agent; OVN has its own. */
  readonly firewall: FirewallDriver;
  /** The folder for its Open vSwitch, which is made. Default: a new one in the folder for temporary files. */
  readonly ovs?: string;
}

/** Options of a bed. */
export interface NeutronBedOptions extends AbortOptions {
  /** The namespace of server, database and broker, and its address for hosts. Loopback is up there. */
  readonly cloud: { readonly netns: string; readonly address: IpAddress };
  readonly hosts: readonly NeutronBedHost[];
  /** Default: `openvswitch`. */
  readonly driver?: MechanismDriver;
  /** The folder of everything else, which is made. Default: a new one in the folder for temporary files. */
  readonly folder?: string;
  /** Ports that a project can have. Default 5000. */
  readonly quota?: number;
}

/** Disposing ends all processes and removes the folder. The namespaces and links stay. */
export class NeutronBed extends RunningNeutron implements AsyncDisposable {
  /** The API inside the cloud's namespace. */
  readonly innerUrl: URL = new URL(`http://127.0.0.1:${API_PORT}`);
  readonly #processes: Processes;
  readonly #relay: Relay;

  private constructor(
    deps: RunningNeutronDeps,
    state: NeutronState,
    { programs, relay }: { readonly programs: StartedPrograms; readonly relay: Relay },
  ) {
    super(deps, state, programs);
    this.#processes = deps.processes;
    this.#relay = relay;
  }

  /**
   * Starts everything side by side; resolves when Neutron takes all agents for alive. Rejects with {@link NeutronBedError}, `KernelError`, and
   * the signal's reason; then nothing is left but links.
   */
  static async open(deps: { readonly kernel: Kernel }, options: NeutronBedOptions): Promise<NeutronBed> {
    const { driver = "openvswitch" } = options;
    const missing = [...missingPrograms(), ...(driver === "ovn" ? missingOvnPrograms() : [])];
    if (missing.length > 0) {
      const packages = driver === "ovn" ? `${NEUTRON_PACKAGES} ${OVN_PACKAGES}` : NEUTRON_PACKAGES;
      throw new NeutronBedError("not-installed", `missing ${missing.join(", ")}: install ${packages}`);
    }
    const folder = options.folder ?? mkdtempSync(join(tmpdir(), "isthmus-neutron-"));
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    await using undo = new AsyncDisposableStack();
    undo.defer(() => rmSync(folder, { recursive: true, force: true }));
    const processes = undo.use(new Processes(folder));
    for (const name of ["lib", "lock"]) mkdirSync(join(folder, name));
    const { cloud, signal } = options;
    joinHosts(deps.kernel, cloud.netns, options.hosts);
    processes.start(brokerProgram(folder, cloud.netns));
    if (driver === "ovn") for (const program of centralPrograms(folder, cloud.netns)) processes.start(program);
    const hosts: NeutronHostState[] = [];
    const agents = new Map<string, StartedProgram>();
    for (const [at, host] of options.hosts.entries()) {
      const ovs = undo.use(
        await OvsProcesses.open({
          netns: host.netns,
          env: processes.env,
          ...(host.ovs === undefined ? {} : { folder: host.ovs }),
        }),
      );
      const tunnel = tunnelAddress(at);
      const { name, netns } = host;
      await joinTunnels(deps.kernel, ovs, { netns, address: tunnel });
      const agent =
        driver === "ovn"
          ? controllerProgram(folder, { name, netns, ovs, central: cloud.address, tunnel })
          : agentProgram(folder, { host, ovs, broker: cloud.address, tunnel });
      hosts.push({ name, netns, ovs: ovs.folder, tunnel: tunnel.toString(), agent });
      agents.set(name, processes.start(agent));
    }
    const data = join(folder, "mysql");
    await makeDatabase(data, { processes, netns: cloud.netns, folder: join(folder, "new") }, { signal });
    writeInit(data);
    processes.start(databaseProgram(data, cloud.netns));
    const server = serverProgram(folder, cloud.netns, { quota: options.quota ?? 5000, driver });
    const programs = { server: processes.start(server), agents };
    const relay = undo.use(await openRelay(cloud.netns, { address: LOOPBACK, port: API_PORT }));
    const state = { folder, url: `http://127.0.0.1:${relay.port}`, server, hosts };
    writeState(state);
    const bed = new NeutronBed({ ...deps, processes }, state, { programs, relay });
    const alive = options.hosts.map(({ name }) => bed.untilAlive(name, options));
    await unlessAborted(Promise.all(alive), { signal });
    undo.move();
    return bed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay[Symbol.asyncDispose]();
    await this.#processes[Symbol.asyncDispose]();
    for (const host of this.hosts) await this.ovs(host)[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function brokerProgram(folder: string, netns: string): ProgramSpec {
  const config = join(folder, "rabbitmq.conf");
  const definitions = join(folder, "definitions.json");
  writeFileSync(config, brokerConfig(definitions));
  writeFileSync(definitions, brokerDefinitions());
  const data = join(folder, "mq");
  return {
    name: "rabbitmq",
    argv: [PROGRAMS.broker],
    netns,
    env: {
      RABBITMQ_NODENAME: "rabbit@localhost",
      ERL_EPMD_ADDRESS: "127.0.0.1",
      RABBITMQ_MNESIA_BASE: data,
      RABBITMQ_LOG_BASE: data,
      RABBITMQ_CONFIG_FILE: config,
      RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, "plugins"),
      // One scheduler, which sleeps when it has nothing to do. By default each processor has one, and it waits busily.
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
    },
  };
}

function serverProgram(
  folder: string,
  netns: string,
  { quota, driver }: { readonly quota: number; readonly driver: MechanismDriver },
): FoundProgram {
  const files = { "neutron.conf": serverConfig({ folder, quota, driver }), "ml2.ini": ml2Config(driver) };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const config = Object.keys(files).flatMap((name) => ["--config-file", join(folder, name)]);
  return {
    name: "neutron-server",
    argv: [PROGRAMS.python, PROGRAMS.server, ...config],
    netns,
    config: join(folder, "neutron.conf"),
  };
}

function agentProgram(
  folder: string,
  place: {
    readonly host: NeutronBedHost;
    readonly ovs: OvsProcesses;
    readonly broker: IpAddress;
    readonly tunnel: IpAddress;
  },
): FoundProgram {
  const { name, netns, firewall } = place.host;
  const own = join(folder, `agent-${name}`);
  const file = `${own}.ini`;
  mkdirSync(own);
  writeFileSync(
    file,
    agentConfig({
      host: name,
      folder: own,
      file,
      broker: place.broker.toString(),
      tunnelAddress: place.tunnel.toString(),
      ovsdb: place.ovs.socketPath,
      firewall,
    }),
  );
  return {
    name: `agent-${name}`,
    argv: supervised([PROGRAMS.python, PROGRAMS.agent, "--config-file", file]),
    netns,
    config: file,
    // Commands of OpenFlow find the bridges by their sockets.
    env: { OVS_RUNDIR: place.ovs.folder },
  };
}
