/**
 * A line with delay and loss between two network namespaces, in user space over TUN devices: for machines whose kernel has no netem.
 *
 * ```ts
 * await using line = await FarLine.open({ roundTripMs: 50, loss: 0.01 });
 * spawn("nsenter", [`--net=${line.near.path}`, "curl", `http://${FAR_ADDRESS}/`]);
 * ```
 */
import { type ChildProcess, execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createNetNs, deleteNetNs, type NetNs } from "#kernel/netns";

/** The addresses of the ends. */
export const NEAR_ADDRESS = "10.99.0.1";
export const FAR_ADDRESS = "10.99.0.2";
/** The device of each end. */
export const LINE_IFNAME = "line0";
/** The default of the largest packet, in bytes: few packets cost little processor, so that the line is not what is slow. */
const MTU_BYTES = 65_000;

export interface FarLineOptions {
  /** Delay there and back, in milliseconds. */
  readonly roundTripMs: number;
  /** Part of the packets that is lost, in each direction, 0 to 1. */
  readonly loss: number;
  /** Largest packet, in bytes. With small ones TCP itself gets little over a line with loss. Default: 65,000. */
  readonly mtuBytes?: number;
}

let serial = 0;

export class FarLine implements AsyncDisposable {
  readonly near: NetNs;
  readonly far: NetNs;
  readonly #names: readonly string[];
  readonly #line: ChildProcess;

  private constructor(ends: readonly [NetNs, NetNs], names: readonly string[], line: ChildProcess) {
    [this.near, this.far] = ends;
    this.#names = names;
    this.#line = line;
  }

  static async open({ roundTripMs, loss, mtuBytes = MTU_BYTES }: FarLineOptions): Promise<FarLine> {
    serial += 1;
    const names = ["near", "far"].map((end) => `line-${process.pid}-${serial}-${end}`);
    const [near, far] = names.map((name) => createNetNs(name)) as [NetNs, NetNs];
    for (const [name, own, other] of [
      [near, NEAR_ADDRESS, FAR_ADDRESS],
      [far, FAR_ADDRESS, NEAR_ADDRESS],
    ] as const) {
      const ip = (line: string): void => {
        execFileSync("nsenter", [`--net=${name.path}`, "ip", ...line.split(" ")]);
      };
      ip("link set lo up");
      ip(`tuntap add mode tun name ${LINE_IFNAME}`);
      ip(`link set ${LINE_IFNAME} mtu ${mtuBytes} txqueuelen 10000 up`);
      ip(`address add ${own} peer ${other} dev ${LINE_IFNAME}`);
    }
    const line = fork(join(import.meta.dirname, "far-line-process.ts"), [], {
      env: {
        ...process.env,
        LINE_ENDS: `${near.path} ${far.path}`,
        LINE_DELAY_MS: String(roundTripMs / 2),
        LINE_LOSS: String(loss),
      },
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    const opened = new FarLine([near, far], names, line);
    await Promise.race([
      once(line, "message"),
      once(line, "exit").then(() => Promise.reject(new Error("the line has ended"))),
    ]);
    return opened;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#line.exitCode === null) {
      const ended = once(this.#line, "exit");
      this.#line.kill("SIGKILL");
      await ended;
    }
    for (const end of [this.near, this.far]) end[Symbol.dispose]();
    for (const name of this.#names) deleteNetNs(name);
  }
}
