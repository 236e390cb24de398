import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { inNetNs, openNetNs } from "#kernel/netns";
import { poll } from "#lab/poll";
import { OvsProcessesError } from "./errors.ts";

const SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema";
const SWITCH = "/usr/sbin/ovs-vswitchd";
/** Time for the database's socket, in milliseconds. */
const START_MS = 30_000;
const LOOK_MS = 20;

/** Whether Debian's `openvswitch-switch` is there. */
export function isOvsInstalled(): boolean {
  return existsSync(SWITCH) && existsSync(SCHEMA);
}

/** Where Open vSwitch runs. */
export interface OvsPlace {
  /** Name of the network namespace. Default: that of this process. */
  readonly netns?: string;
  /** The environment of both processes, added to this process's own. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Database and switch. Disposing ends both and removes their folder. */
export class OvsProcesses implements AsyncDisposable {
  readonly folder: string;
  /** The socket of the database. */
  readonly socketPath: string;
  readonly #place: OvsPlace;
  #database: ChildProcess | undefined;
  #switch: ChildProcess | undefined;

  private constructor(place: OvsPlace) {
    this.folder = mkdtempSync(join(tmpdir(), "isthmus-ovs-"));
    this.socketPath = join(this.folder, "db.sock");
    this.#place = place;
  }

  /** Starts both with a bridge `br-int`, which forwards as any switch does. Rejects with {@link OvsProcessesError}. */
  static async open(place: OvsPlace = {}): Promise<OvsProcesses> {
    if (!isOvsInstalled())
      throw new OvsProcessesError("not-installed", `no ${SWITCH}: install Debian's package openvswitch-switch`);
    const ovs = new OvsProcesses(place);
    try {
      await ovs.start();
      ovs.makeBridge();
      return ovs;
    } catch (error) {
      await ovs[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts with an empty database, or with the one that {@link stopDatabase} has left. */
  async start(): Promise<void> {
    await this.startDatabase();
    this.vsctl("--no-wait", "init");
    this.startSwitch();
  }

  /** Resolves when the database listens. */
  async startDatabase(): Promise<void> {
    const file = join(this.folder, "conf.db");
    if (!existsSync(file)) execFileSync("ovsdb-tool", ["create", file, SCHEMA]);
    this.#database = this.#spawn("ovsdb-server", [file, `--remote=punix:${this.socketPath}`]);
    const listens = await poll(() => existsSync(this.socketPath), {
      until: (is) => is,
      everyMs: LOOK_MS,
      deadlineMs: START_MS,
      clock: systemClock,
    });
    if (!listens)
      throw new OvsProcessesError("start-failed", `ovsdb-server has made no socket after ${START_MS / 1000} s`);
  }

  /** Starts the switch; commands with {@link vsctl} wait for it. */
  startSwitch(): void {
    this.#switch = this.#spawn("ovs-vswitchd", [`unix:${this.socketPath}`]);
  }

  /** Makes a bridge, without a controller, with its datapath in user space. */
  makeBridge(name = "br-int"): void {
    this.vsctl(
      "--may-exist",
      "add-br",
      name,
      "--",
      "set",
      "bridge",
      name,
      "datapath_type=netdev",
      "fail_mode=standalone",
    );
  }

  /** Ends both and removes the database, as a restart of the machine's service does that also loses it. */
  async lose(): Promise<void> {
    await this.stopSwitch();
    await this.stopDatabase();
    rmSync(join(this.folder, "conf.db"), { force: true });
  }

  /** Ends the switch. Its ports stay in the database. */
  async stopSwitch(): Promise<void> {
    await end(this.#switch);
    this.#switch = undefined;
  }

  /** Ends the database. Its file stays. */
  async stopDatabase(): Promise<void> {
    await end(this.#database);
    this.#database = undefined;
    rmSync(this.socketPath, { force: true });
  }

  /** The output of `ovs-vsctl`. Throws if it fails, or takes 20 s. */
  vsctl(...args: readonly string[]): string {
    return execFileSync("ovs-vsctl", [`--db=unix:${this.socketPath}`, "--timeout=20", ...args], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    }).trim();
  }

  /** The devices of `br-int`, sorted. */
  devices(): string[] {
    return this.vsctl("list-ports", "br-int")
      .split("\n")
      .filter((line) => line !== "")
      .sort();
  }

  /** What the switch has logged. */
  log(): string {
    return readFileSync(join(this.folder, "ovs-vswitchd.log"), "utf8");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopSwitch();
    await this.stopDatabase();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #spawn(program: string, args: readonly string[]): ChildProcess {
    const own = [
      `--unixctl=${join(this.folder, `${program}.ctl`)}`,
      `--log-file=${join(this.folder, `${program}.log`)}`,
      "--verbose=console:off",
    ];
    const folders = { OVS_RUNDIR: this.folder, OVS_LOGDIR: this.folder, OVS_DBDIR: this.folder };
    const run = (): ChildProcess =>
      spawn(program, [...args, ...own], { stdio: "ignore", env: { ...process.env, ...this.#place.env, ...folders } });
    if (this.#place.netns === undefined) return run();
    using netns = openNetNs({ name: this.#place.netns });
    // A child made while this thread is in the namespace stays in it.
    return inNetNs(netns, run);
  }
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
