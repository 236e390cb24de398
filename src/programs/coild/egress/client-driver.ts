import { type AbortOptions, Backoff, retry } from "#base/async";
import type { Clock } from "#base/clock";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { chooseDriver, type TUNNEL_DRIVERS, type TunnelDriver, TunnelError } from "#features/egress";
import { isKernelError } from "#kernel/errors";
import type { Kernel } from "#kernel/net";

/** The pauses between tries to find what the kernel lacks, milliseconds: an administrator may load the modules. */
const AGAIN = { initialMs: 10_000, maxMs: 60_000 };

/** The tunnel driver of this node's clients, chosen once. Without it pods that name an Egress cannot start; others can. */
export class ClientDriver {
  readonly #parts: ConstructorParameters<typeof ClientDriver>[0];
  #driver: TunnelDriver | undefined;
  #fault = "";

  /** Tries once, which makes and deletes links in a temporary namespace. */
  constructor(parts: {
    readonly kernel: Pick<Kernel, "createAnonymousNetNs" | "openStack">;
    readonly asked: (typeof TUNNEL_DRIVERS)[number];
    /** Loads the kernel's modules, as far as the system has them; called before each try but the first, for which the caller has done so. */
    readonly loadModules: (options: AbortOptions) => Promise<void>;
    readonly health: HealthPart;
    /** Called with each change; `none` while the kernel lacks what is asked for. */
    readonly onChosen: (driver: TunnelDriver["name"] | "none") => void;
    readonly log: Logger;
    readonly clock: Clock;
  }) {
    this.#parts = parts;
    try {
      this.#choose();
    } catch (error) {
      this.#refused(error);
      parts.onChosen("none");
      parts.log.warn("pods that name an Egress cannot start on this node", { error: this.#fault });
    }
  }

  get current(): TunnelDriver | undefined {
    return this.#driver;
  }

  /** The reason why there is no driver; a sentence with the fix. */
  get fault(): string {
    return this.#fault;
  }

  /** Tries again until there is a driver; resolves to true if that was not there before. */
  async run({ signal }: Required<AbortOptions>): Promise<boolean> {
    if (this.#driver !== undefined) return false;
    const again = async (): Promise<void> => {
      await this.#parts.loadModules({ signal });
      this.#choose();
    };
    await retry(again, {
      signal,
      clock: this.#parts.clock,
      backoff: new Backoff({ ...AGAIN, jitter: 0 }),
      isPassing: isRefusal,
      onFailure: (error) => this.#refused(error),
    });
    return true;
  }

  #choose(): void {
    const { kernel, asked, health, onChosen, log } = this.#parts;
    const { driver, lacking } = chooseDriver(kernel, asked);
    if (lacking.length > 0) log.warn("this kernel lacks what fou needs; clients use vxlan", { lacking });
    this.#driver = driver;
    onChosen(driver.name);
    health.ok(driver.name);
    log.info("the tunnel driver of clients was chosen", { driver: driver.name });
  }

  #refused(error: unknown): void {
    if (!isRefusal(error)) throw error;
    this.#fault = error.message;
    this.#parts.health.degraded(error);
  }
}

function isRefusal(error: unknown): error is Error {
  return error instanceof TunnelError || isKernelError(error);
}
