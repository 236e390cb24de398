import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AbortOptions, unlessAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { Kernel } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { OvsProcesses } from "#lab/ovs";
import { poll } from "#lab/poll";
import { NeutronApi } from "./api.ts";
import {
  API_PORT,
  agentConfig,
  brokerConfig,
  brokerDefinitions,
  type FirewallDriver,
  ml2Config,
  serverConfig,
} from "./configs.ts";
import { databaseProgram, makeDatabase, writeInit } from "./database.ts";
import { NeutronBedError } from "./errors.ts";
import { Processes, type ProgramSpec, type StartedProgram } from "./processes.ts";
import { missingPrograms, NEUTRON_PACKAGES, PROGRAMS } from "./programs.ts";
import { openRelay, type Relay } from "./relay.ts";
import { joinHosts, TUNNEL_PREFIX_LENGTH, tunnelAddress, UNDERLAY_DEVICE } from "./underlay.ts";

/** Time until all agents are alive, in milliseconds. It is 15 s on an idle machine. */
const START_MS = 180_000;
const LOOK_MS = 100;
const LOOPBACK = IpAddress.parse("127.0.0.1");
/** The bridge of a host's address in tunnels; a switch in user space finds the way to other hosts only by a bridge of its own. */
const TUNNELS = "br-phy";

/** A host of the bed: a network namespace that reaches the cloud's address. */
export interface NeutronBedHost {
  /** Its name at Neutron, by which ports are bound. */
  readonly name: string;
  readonly netns: string;
  readonly firewall: FirewallDriver;
}

/** How a bed is made. */
export interface NeutronBedOptions extends AbortOptions {
  /** The namespace of server, database and broker, and its address for hosts. Loopback is up there. */
  readonly cloud: { readonly netns: string; readonly address: IpAddress };
  readonly hosts: readonly NeutronBedHost[];
  /** Ports that a project can have. Default 5000. */
  readonly quota?: number;
}

/** A host with its switch and agent. */
interface RunningHost {
  readonly at: NeutronBedHost;
  readonly ovs: OvsProcesses;
  /** Its address in tunnels. */
  readonly tunnel: IpAddress;
  readonly agent: ProgramSpec;
  process: StartedProgram;
}

/** Disposing ends all processes and removes the folder. The namespaces and links stay. */
export class NeutronBed implements AsyncDisposable {
  /** Requests of a cloud's user, from the namespace of this process. */
  readonly api: NeutronApi;
  readonly folder: string;
  /** The API inside the cloud's namespace. */
  readonly innerUrl: URL = new URL(`http://127.0.0.1:${API_PORT}`);
  readonly #processes: Processes;
  readonly #relay: Relay;
  readonly #hosts = new Map<string, RunningHost>();
  #server: StartedProgram;
  readonly #serverProgram: ProgramSpec;
  readonly #kernel: Kernel;

  private constructor(init: {
    readonly kernel: Kernel;
    readonly folder: string;
    readonly processes: Processes;
    readonly relay: Relay;
    readonly hosts: readonly RunningHost[];
    readonly server: StartedProgram;
    readonly serverProgram: ProgramSpec;
  }) {
    this.folder = init.folder;
    this.#kernel = init.kernel;
    this.#processes = init.processes;
    this.#relay = init.relay;
    this.#server = init.server;
    this.#serverProgram = init.serverProgram;
    for (const host of init.hosts) this.#hosts.set(host.at.name, host);
    this.api = new NeutronApi(new URL(`http://127.0.0.1:${init.relay.port}`));
  }

  /**
   * Starts everything side by side; resolves when Neutron takes all agents for alive. Rejects with {@link NeutronBedError}, `KernelError`, and
   * the signal's reason; then nothing is left but links.
   */
  static async open(deps: { readonly kernel: Kernel }, options: NeutronBedOptions): Promise<NeutronBed> {
    const missing = missingPrograms();
    if (missing.length > 0)
      throw new NeutronBedError("not-installed", `missing ${missing.join(", ")}: install ${NEUTRON_PACKAGES}`);
    const folder = mkdtempSync(join(tmpdir(), "isthmus-neutron-"));
    await using undo = new AsyncDisposableStack();
    undo.defer(() => rmSync(folder, { recursive: true, force: true }));
    const processes = undo.use(new Processes(folder));
    for (const name of ["lib", "lock"]) mkdirSync(join(folder, name));
    const { cloud, signal } = options;
    joinHosts(deps.kernel, cloud.netns, options.hosts);
    processes.start(brokerProgram(folder, cloud.netns));
    const hosts: RunningHost[] = [];
    for (const [at, host] of options.hosts.entries()) {
      const ovs = undo.use(await OvsProcesses.open({ netns: host.netns, env: processes.env }));
      const tunnel = tunnelAddress(at);
      joinTunnels(deps.kernel, ovs, { netns: host.netns, address: tunnel });
      const agent = agentProgram(folder, { host, ovs, broker: cloud.address, tunnel });
      hosts.push({ at: host, ovs, tunnel, agent, process: processes.start(agent) });
    }
    const data = join(folder, "mysql");
    await makeDatabase(data, { ...(signal === undefined ? {} : { signal }) });
    writeInit(data);
    processes.start(databaseProgram(data, cloud.netns));
    const serverProgram = serverProgramOf(folder, cloud.netns, options.quota ?? 5000);
    const server = processes.start(serverProgram);
    const relay = undo.use(await openRelay(cloud.netns, { address: LOOPBACK, port: API_PORT }));
    const bed = new NeutronBed({ ...deps, folder, processes, relay, hosts, server, serverProgram });
    const alive = options.hosts.map(({ name }) => bed.untilAlive(name, options));
    await unlessAborted(Promise.all(alive), { signal });
    undo.move();
    return bed;
  }

  /** Open vSwitch of a host. */
  ovs(host: string): OvsProcesses {
    return this.#hostOf(host).ovs;
  }

  /** Ends a host's switch and starts it again. Its database goes on. */
  async restartSwitch(host: string): Promise<void> {
    const { at, ovs, tunnel } = this.#hostOf(host);
    await ovs.stopSwitch();
    ovs.startSwitch();
    // Its devices in user space are new ones.
    joinTunnels(this.#kernel, ovs, { netns: at.netns, address: tunnel });
  }

  /** Ends a host's Open vSwitch and starts it with an empty database, and then Neutron's agent, which makes its bridges only at its start. */
  async loseSwitch(host: string): Promise<void> {
    const { at, ovs, tunnel } = this.#hostOf(host);
    await ovs.lose();
    await ovs.start();
    joinTunnels(this.#kernel, ovs, { netns: at.netns, address: tunnel });
    await this.stopAgent(host);
    this.startAgent(host);
  }

  /** Ends Neutron's agent of a host at once. */
  async stopAgent(host: string): Promise<void> {
    await this.#processes.stop(this.#hostOf(host).process);
  }

  /** Starts the agent of a host again after {@link stopAgent}. */
  startAgent(host: string): void {
    const running = this.#hostOf(host);
    running.process = this.#processes.start(running.agent);
  }

  /** Ends Neutron's server and its workers at once. */
  async stopServer(): Promise<void> {
    await this.#processes.stop(this.#server);
  }

  /** Starts Neutron's server again after {@link stopServer}. */
  startServer(): void {
    this.#server = this.#processes.start(this.#serverProgram);
  }

  /** Waits until Neutron takes the agent of a host for alive, or with `false` for dead. Rejects with {@link NeutronBedError} `start-failed`. */
  async untilAlive(host: string, { signal }: AbortOptions = {}, wanted = true): Promise<void> {
    const { process } = this.#hostOf(host);
    const look = async (): Promise<boolean> => {
      const failed = [this.#server, ...(wanted ? [process] : [])].find((one) => one.isEnded());
      if (failed !== undefined) throw new NeutronBedError("start-failed", `a program ended: ${failed.lastWords()}`);
      try {
        const [agent] = await this.api.list(`agents?host=${encodeURIComponent(host)}`);
        return (agent?.["alive"] === true) === wanted;
      } catch (error) {
        // Its server does not listen yet, or is still starting.
        if (error instanceof TypeError || error instanceof NeutronBedError) return false;
        throw error;
      }
    };
    const is = await poll(look, {
      until: (so) => so,
      everyMs: LOOK_MS,
      deadlineMs: START_MS,
      clock: systemClock,
      ...(signal === undefined ? {} : { signal }),
    });
    if (!is) {
      const words = `${process.lastWords().slice(-800)}\n${this.#server.lastWords().slice(-800)}`;
      throw new NeutronBedError(
        "start-failed",
        `the agent of ${host} is not ${wanted ? "alive" : "dead"} after ${START_MS / 1000} s:\n${words}`,
      );
    }
  }

  /** What a program has written: `neutron-server`, `rabbitmq`, `mariadb`, or `agent-HOST`. */
  log(program: string): string {
    return readFileSync(join(this.folder, `${program}.log`), "utf8");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay[Symbol.asyncDispose]();
    await this.#processes[Symbol.asyncDispose]();
    for (const { ovs } of this.#hosts.values()) await ovs[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #hostOf(name: string): RunningHost {
    const host = this.#hosts.get(name);
    if (host === undefined) throw new Error(`the bed has no host ${name}`);
    return host;
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
    },
  };
}

function serverProgramOf(folder: string, netns: string, quota: number): ProgramSpec {
  const files = { "neutron.conf": serverConfig({ folder, quota }), "ml2.ini": ml2Config() };
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
): ProgramSpec {
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
    argv: [PROGRAMS.python, PROGRAMS.agent, "--config-file", file],
    netns,
    config: file,
    // Commands of OpenFlow find the bridges by their sockets.
    env: { OVS_RUNDIR: place.ovs.folder },
  };
}

/** Gives a host's switch its bridge of tunnels, whose device is there when `ovs-vsctl` returns. */
function joinTunnels(
  kernel: Kernel,
  ovs: OvsProcesses,
  { netns: name, address }: { readonly netns: string; readonly address: IpAddress },
): void {
  ovs.makeBridge(TUNNELS);
  ovs.vsctl("--may-exist", "add-port", TUNNELS, UNDERLAY_DEVICE);
  using netns = openNetNs({ name });
  using stack = kernel.openStack(netns);
  const link = stack.links.get({ name: TUNNELS });
  if (link === undefined) throw new NeutronBedError("start-failed", `Open vSwitch made no device ${TUNNELS}`);
  stack.links.set(link.index, { up: true });
  stack.addresses.replace({ linkIndex: link.index, address, prefixLength: TUNNEL_PREFIX_LENGTH, noDad: false });
}
