/**
 * Open vSwitch of Debian's package in a network namespace of a test: database, switch with its datapath in user space, and the bridge `br-int`
 * that forwards as any switch does. Needs root; all of it ends when it is disposed.
 *
 * Owns: the two processes and their folder. Does not know: ports of a VPC.
 *
 * ```ts
 * await using ovs = await OvsBed.open({ netns: "node-1" });
 * new OpenVSwitch({ clock }, { socketPath: ovs.socketPath });
 * ```
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "#test/lab";

const SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema";
/** The reason to skip a test of Open vSwitch; `false` where it is installed. */
export const skipWithoutOvs: string | false =
  existsSync("/usr/sbin/ovs-vswitchd") && existsSync(SCHEMA) ? false : "package: openvswitch-switch is not installed";

/** Database and switch. Disposing ends both. */
export class OvsBed implements AsyncDisposable {
  readonly folder: string;
  /** The socket of the database. */
  readonly socketPath: string;
  readonly #netns: string | undefined;
  #database: ChildProcess | undefined;
  #switch: ChildProcess | undefined;

  private constructor(netns: string | undefined) {
    this.folder = mkdtempSync(join(tmpdir(), "isthmus-ovs-"));
    this.socketPath = join(this.folder, "db.sock");
    this.#netns = netns;
  }

  /** Starts both with a bridge `br-int`; `netns` is the name of the namespace, by default that of the process. */
  static async open({ netns }: { readonly netns?: string } = {}): Promise<OvsBed> {
    const bed = new OvsBed(netns);
    try {
      await bed.start();
      bed.makeBridge();
      return bed;
    } catch (error) {
      await bed[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts with an empty database. */
  async start(): Promise<void> {
    await this.startDatabase();
    this.vsctl("--no-wait", "init");
    await this.startSwitch();
  }

  async startDatabase(): Promise<void> {
    const file = join(this.folder, "conf.db");
    if (!existsSync(file)) execFileSync("ovsdb-tool", ["create", file, SCHEMA]);
    this.#database = this.#spawn("ovsdb-server", [file, `--remote=punix:${this.socketPath}`]);
    await until("the database listens", () => existsSync(this.socketPath));
  }

  async startSwitch(): Promise<void> {
    this.#switch = this.#spawn("ovs-vswitchd", [`unix:${this.socketPath}`]);
  }

  makeBridge(name = "br-int"): void {
    this.vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "fail_mode=standalone");
  }

  /** Ends both, as a restart of the machine's service does that also loses the database. */
  async lose(): Promise<void> {
    await this.stopSwitch();
    await this.stopDatabase();
    rmSync(join(this.folder, "conf.db"), { force: true });
  }

  async stopSwitch(): Promise<void> {
    await end(this.#switch);
    this.#switch = undefined;
  }

  async stopDatabase(): Promise<void> {
    await end(this.#database);
    this.#database = undefined;
    rmSync(this.socketPath, { force: true });
  }

  /** The output of `ovs-vsctl`. */
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
    ];
    const whole = [program, ...args, ...own, "--verbose=console:off"];
    const argv = this.#netns === undefined ? whole : ["nsenter", `--net=/run/netns/${this.#netns}`, ...whole];
    const [file = "", ...rest] = argv;
    return spawn(file, rest, {
      stdio: "ignore",
      env: { ...process.env, OVS_RUNDIR: this.folder, OVS_LOGDIR: this.folder, OVS_DBDIR: this.folder },
    });
  }
}

async function end(child: ChildProcess | undefined): Promise<void> {
  if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
