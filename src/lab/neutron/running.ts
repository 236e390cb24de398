import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type AbortOptions, poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { Kernel } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { OvsProcesses } from "#lab/ovs";
import { NeutronApi } from "./api.ts";
import { NeutronBedError } from "./errors.ts";
import { Processes, type ProgramSpec, type StartedProgram } from "./processes.ts";
import { TUNNEL_PREFIX_LENGTH, UNDERLAY_DEVICE } from "./underlay.ts";

/** Time until all agents are alive, in milliseconds. It is 15 s on an idle machine. */
const START_MS = 180_000;
const LOOK_MS = 100;
/** Time for the device of a bridge, in milliseconds. */
const DEVICE_MS = 30_000;
/** The bridge of a host's address in tunnels; a switch in user space finds the way to other hosts only by a bridge of its own. */
const TUNNELS = "br-phy";
/** The file of {@link NeutronState} in the bed's folder. */
const STATE_FILE = "bed.json";

/** A program with a configuration by which it is found. */
export type FoundProgram = ProgramSpec & { readonly config: string };

/** A host of a bed. */
export interface NeutronHostState {
  readonly name: string;
  readonly netns: string;
  /** The folder of its Open vSwitch. */
  readonly ovs: string;
  /** Its address in tunnels. */
  readonly tunnel: string;
  /** Neutron's agent. */
  readonly agent: FoundProgram;
}

/** A bed as plain data. */
export interface NeutronState {
  readonly folder: string;
  /** Neutron's API, from the namespace of the bed's process. */
  readonly url: string;
  readonly server: FoundProgram;
  readonly hosts: readonly NeutronHostState[];
}

/** The collaborators that end and start programs of a bed. */
export interface RunningNeutronDeps {
  readonly kernel: Kernel;
  readonly processes: Processes;
}

/** The server, and the agent of each host by the host's name. */
export interface StartedPrograms {
  readonly server: StartedProgram;
  readonly agents: ReadonlyMap<string, StartedProgram>;
}

/** Characters of the server's log in the error of a request that it could not answer: its traceback. */
const LAST_CHARACTERS = 3000;

/** A bed that runs: requests to its Neutron, and failures of its switches and agents. */
export class RunningNeutron {
  /** Requests of a cloud's user, from the namespace of the bed's process. */
  readonly api: NeutronApi;
  readonly folder: string;
  readonly #deps: RunningNeutronDeps;
  readonly #hosts: ReadonlyMap<string, NeutronHostState>;
  readonly #server: StartedProgram;
  readonly #agents: Map<string, StartedProgram>;

  protected constructor(deps: RunningNeutronDeps, state: NeutronState, { server, agents }: StartedPrograms) {
    this.api = new NeutronApi(new URL(state.url), {
      lastWords: () => this.log("neutron-server").slice(-LAST_CHARACTERS),
    });
    this.folder = state.folder;
    this.#deps = deps;
    this.#hosts = new Map(state.hosts.map((host) => [host.name, host]));
    this.#server = server;
    this.#agents = new Map(agents);
  }

  /** The bed of another process, by its folder. Its switches and agents can be ended and started; the bed's process ends all of them. */
  static at({ kernel }: { readonly kernel: Kernel }, folder: string): RunningNeutron {
    const state = JSON.parse(readFileSync(join(folder, STATE_FILE), "utf8")) as NeutronState;
    const processes = new Processes(folder);
    const agents = new Map(state.hosts.map(({ name, agent }) => [name, processes.find(agent)]));
    return new RunningNeutron({ kernel, processes }, state, { server: processes.find(state.server), agents });
  }

  /** The names of all hosts. */
  get hosts(): readonly string[] {
    return [...this.#hosts.keys()];
  }

  /** Open vSwitch of a host. */
  ovs(host: string): OvsProcesses {
    const { ovs, netns } = this.#hostOf(host);
    return OvsProcesses.at(ovs, { netns, env: this.#deps.processes.env });
  }

  /** Ends a host's switch and starts it again, and Neutron's agent with it. Its database goes on. */
  async restartSwitch(host: string): Promise<void> {
    await this.#restart(host, async (ovs) => {
      await ovs.stopSwitch();
      ovs.startSwitch();
    });
  }

  /** Ends a host's Open vSwitch and starts it with an empty database, and Neutron's agent with it, which makes its bridges only at its start. */
  async loseSwitch(host: string): Promise<void> {
    await this.#restart(host, async (ovs) => {
      await ovs.lose();
      await ovs.start();
    });
  }

  /** Ends Neutron's agent of a host at once. */
  async stopAgent(host: string): Promise<void> {
    await this.#deps.processes.stop(this.#agentOf(host));
  }

  /** Has Neutron's agent of a host stand still, or go on. Its connections stay. */
  pauseAgent(host: string, isPaused: boolean): void {
    this.#deps.processes.pause(this.#agentOf(host), isPaused);
  }

  /** Starts the agent of a host again after {@link stopAgent}. */
  startAgent(host: string): void {
    this.#agents.set(host, this.#deps.processes.start(this.#hostOf(host).agent));
  }

  /** Starts the agent of a host if it does not run, and waits until Neutron takes it for alive. Rejects as {@link untilAlive}. */
  async ensureAgent(host: string): Promise<void> {
    if (!this.#agentOf(host).isEnded()) return;
    this.startAgent(host);
    await this.untilAlive(host);
  }

  /** Waits until Neutron takes the agent of a host for alive, or with `false` for dead. Rejects with {@link NeutronBedError} `start-failed`. */
  async untilAlive(host: string, { signal }: AbortOptions = {}, wanted = true): Promise<void> {
    const agent = this.#agentOf(host);
    const look = async (): Promise<boolean> => {
      const failed = [this.#server, ...(wanted ? [agent] : [])].find((one) => one.isEnded());
      if (failed !== undefined) throw new NeutronBedError("start-failed", `a program ended: ${failed.lastWords()}`);
      try {
        const [seen] = await this.api.list(`agents?host=${encodeURIComponent(host)}`);
        return (seen?.["alive"] === true) === wanted;
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
      const words = `${agent.lastWords().slice(-800)}\n${this.#server.lastWords().slice(-800)}`;
      throw new NeutronBedError(
        "start-failed",
        `the agent of ${host} is not ${wanted ? "alive" : "dead"} after ${START_MS / 1000} s:\n${words}`,
      );
    }
  }

  /** Returns the output of a program: `neutron-server`, `rabbitmq`, `mariadb`, or `agent-HOST`. */
  log(program: string): string {
    return readFileSync(join(this.folder, `${program}.log`), "utf8");
  }

  /**
   * The switch ends under its agent, and the agent is started again after it, as docs/guides/debug-nics.md asks of a host's service manager: an
   * agent that goes on can stand still, and can forget the flows of its tunnels for ever.
   */
  async #restart(host: string, work: (ovs: OvsProcesses) => Promise<void>): Promise<void> {
    const ovs = this.ovs(host);
    await work(ovs);
    // Its devices in user space are new ones.
    const { netns, tunnel } = this.#hostOf(host);
    await joinTunnels(this.#deps.kernel, ovs, { netns, address: IpAddress.parse(tunnel) });
    await this.stopAgent(host);
    this.startAgent(host);
  }

  #hostOf(name: string): NeutronHostState {
    const host = this.#hosts.get(name);
    if (host === undefined) throw new Error(`the bed has no host ${name}`);
    return host;
  }

  #agentOf(name: string): StartedProgram {
    const agent = this.#agents.get(name);
    if (agent === undefined) throw new Error(`the bed has no host ${name}`);
    return agent;
  }
}

/** Writes the file by which other processes find the bed. */
export function writeState(state: NeutronState): void {
  writeFileSync(join(state.folder, STATE_FILE), JSON.stringify(state), { mode: 0o600 });
}

/**
 * Gives a host's switch its bridge of tunnels. A switch that has just started again has the bridge in its database before it makes the device.
 * Rejects with {@link NeutronBedError} `start-failed` when there is none after 30 s.
 */
export async function joinTunnels(
  kernel: Kernel,
  ovs: OvsProcesses,
  { netns: name, address }: { readonly netns: string; readonly address: IpAddress },
): Promise<void> {
  ovs.makeBridge(TUNNELS);
  ovs.vsctl("--may-exist", "add-port", TUNNELS, UNDERLAY_DEVICE);
  using netns = openNetNs({ name });
  using stack = kernel.openStack(netns);
  const link = await poll(() => stack.links.get({ name: TUNNELS }), {
    until: (found) => found !== undefined,
    everyMs: LOOK_MS,
    deadlineMs: DEVICE_MS,
    clock: systemClock,
  });
  if (link === undefined) throw new NeutronBedError("start-failed", `Open vSwitch made no device ${TUNNELS}`);
  stack.links.set(link.index, { up: true });
  stack.addresses.replace({ linkIndex: link.index, address, prefixLength: TUNNEL_PREFIX_LENGTH, noDad: false });
}
