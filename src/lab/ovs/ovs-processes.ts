import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { inNetNs, openNetNs } from "#kernel/netns";
import { OvsProcessesError } from "./errors.ts";

const SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema";
const SWITCH = "/usr/sbin/ovs-vswitchd";
/** Time for the database's socket, in milliseconds. */
const START_MS = 30_000;
const LOOK_MS = 20;

/** Returns true if Debian's `openvswitch-switch` is there. */
export function isOvsInstalled(): boolean {
  return existsSync(SWITCH) && existsSync(SCHEMA);
}

type Program = "ovsdb-server" | "ovs-vswitchd";

/** The place in which Open vSwitch runs. */
export interface OvsPlace {
  /** Name of the network namespace. Default: that of this process. */
  readonly netns?: string;
  /** The folder for both, which is made. Default: a new one in the folder for temporary files. */
  readonly folder?: string;
  /** The environment of both processes, added to this process's own. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Database and switch, found by their files. Disposing ends both and removes their folder. */
export class OvsProcesses implements AsyncDisposable {
  readonly folder: string;
  /** The socket of the database. */
  readonly socketPath: string;
  readonly #place: OvsPlace;

  private constructor(folder: string, place: OvsPlace) {
    this.folder = folder;
    this.socketPath = join(this.folder, "db.sock");
    this.#place = place;
  }

  /** Those of another process, which has started them at this place. */
  static at(folder: string, place: OvsPlace = {}): OvsProcesses {
    return new OvsProcesses(folder, place);
  }

  /** Starts both with a bridge `br-int`, which forwards as any switch does. Rejects with {@link OvsProcessesError}. */
  static async open(place: OvsPlace = {}): Promise<OvsProcesses> {
    if (!isOvsInstalled())
      throw new OvsProcessesError("not-installed", `no ${SWITCH}: install Debian's package openvswitch-switch`);
    const folder = place.folder ?? mkdtempSync(join(tmpdir(), "isthmus-ovs-"));
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const ovs = new OvsProcesses(folder, place);
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
    // The socket is there a moment before it takes connections.
    this.vsctl("--retry", "--no-wait", "init");
    this.startSwitch();
  }

  /** Resolves when the database listens. */
  async startDatabase(): Promise<void> {
    const file = join(this.folder, "conf.db");
    if (!existsSync(file)) execFileSync("ovsdb-tool", ["create", file, SCHEMA]);
    this.#spawn("ovsdb-server", [file, `--remote=punix:${this.socketPath}`]);
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
    this.#spawn("ovs-vswitchd", [`unix:${this.socketPath}`]);
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
    await this.#end("ovs-vswitchd");
  }

  /** Ends the database. Its file stays. */
  async stopDatabase(): Promise<void> {
    await this.#end("ovsdb-server");
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

  /** Returns the log of the switch. */
  log(): string {
    return readFileSync(join(this.folder, "ovs-vswitchd.log"), "utf8");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stopSwitch();
    await this.stopDatabase();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #spawn(program: Program, args: readonly string[]): void {
    const own = [
      `--unixctl=${join(this.folder, `${program}.ctl`)}`,
      `--log-file=${join(this.folder, `${program}.log`)}`,
      "--verbose=console:off",
    ];
    const folders = { OVS_RUNDIR: this.folder, OVS_LOGDIR: this.folder, OVS_DBDIR: this.folder };
    const run = (): number | undefined =>
      spawn(program, [...args, ...own], { stdio: "ignore", env: { ...process.env, ...this.#place.env, ...folders } })
        .pid;
    let pid: number | undefined;
    if (this.#place.netns === undefined) pid = run();
    else {
      using netns = openNetNs({ name: this.#place.netns });
      // A child made while this thread is in the namespace stays in it.
      pid = inNetNs(netns, run);
    }
    if (pid !== undefined) writeFileSync(this.#pidFile(program), String(pid));
  }

  /** Ends a program, whichever process has started it, and waits until it is gone. */
  async #end(program: Program): Promise<void> {
    const file = this.#pidFile(program);
    if (!existsSync(file)) return;
    const pid = Number(readFileSync(file, "utf8"));
    await poll(() => this.#kill(pid), { until: (isGone) => isGone, everyMs: LOOK_MS, clock: systemClock });
    rmSync(file);
  }

  /** Kills the process if it is of this folder; whether it is gone. One that was not waited for is gone too. */
  #kill(pid: number): boolean {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(`${this.folder}/`)) return true;
      process.kill(pid, "SIGKILL");
      return false;
    } catch (error) {
      if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return true;
      throw error;
    }
  }

  #pidFile(program: Program): string {
    return join(this.folder, `${program}.pid`);
  }
}
