import { type AbortOptions, Backoff, retry } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { Kernel } from "#kernel/net";
import { chooseDriver, type TUNNEL_DRIVERS, type TunnelDriver, TunnelError } from "../tunnel/index.ts";

/** The pauses between tries to find what the kernel lacks, milliseconds: an administrator may load the modules. */
const AGAIN = { initialMs: 10_000, maxMs: 60_000 };

/** A driver, or why there is none: a sentence with the fix. */
type DriverChoice =
  | { readonly driver: TunnelDriver; readonly fault?: undefined }
  | { readonly driver?: undefined; readonly fault: string };

/** For pods of all families of the kernel, and for those of one alone. */
interface Choices {
  readonly all: DriverChoice;
  readonly alone: Readonly<Record<IpFamily, DriverChoice>>;
}

/**
 * The tunnel driver of this node's clients, chosen once. As a router's, it is chosen by the families of the pod: what a kernel lacks of IPv6 is nothing to a pod of
 * IPv4 alone. Without a driver pods that name an Egress cannot start; others can.
 */
export class ClientDriver {
  readonly #parts: ConstructorParameters<typeof ClientDriver>[0];
  #choices: Choices;

  /** Tries once, which makes and deletes links in a temporary namespace. */
  constructor(parts: {
    readonly kernel: Pick<Kernel, "createAnonymousNetNs" | "openStack">;
    readonly asked: (typeof TUNNEL_DRIVERS)[number];
    /** Loads the kernel's modules, as far as the system has them; called before each try but the first, for which the caller has done so. */
    readonly loadModules: (options: AbortOptions) => Promise<void>;
    readonly health: HealthPart;
    /** Called with each change of the driver for most pods: those of all of the kernel's families, or of one; `none` while the kernel lacks what is asked for. */
    readonly onChosen: (driver: TunnelDriver["name"] | "none") => void;
    readonly log: Logger;
    readonly clock: Clock;
  }) {
    this.#parts = parts;
    this.#choices = this.#choose();
    this.#tell();
  }

  /** The driver of a pod with addresses of these families. */
  of(families: readonly IpFamily[]): DriverChoice {
    const [family, ...more] = families;
    return family === undefined || more.length > 0 ? this.#choices.all : this.#choices.alone[family];
  }

  /** Tries again until pods of all families have a driver, or the signal aborts; calls `onChange` when other pods have one than before. */
  async run({ signal, onChange }: Required<AbortOptions> & { readonly onChange: () => void }): Promise<void> {
    if (this.#fault === undefined) return;
    const again = async (): Promise<void> => {
      await this.#parts.loadModules({ signal });
      const before = textOf(this.#choices);
      this.#choices = this.#choose(this.#choices);
      if (textOf(this.#choices) !== before) {
        this.#tell();
        onChange();
      }
      if (this.#fault !== undefined) throw new StillLacking("lacking", this.#fault);
    };
    await retry(again, {
      signal,
      clock: this.#parts.clock,
      backoff: new Backoff({ ...AGAIN, jitter: 0 }),
      isPassing: (error) => error instanceof StillLacking,
    });
  }

  /** The fault of all families, else that of one. */
  get #fault(): string | undefined {
    const { all, alone } = this.#choices;
    return all.fault ?? alone[4].fault ?? alone[6].fault;
  }

  /** Chooses for each family. An earlier choice stays: a later try may fail for a reason that passes. */
  #choose(before?: Choices): Choices {
    const kept = (choice: DriverChoice | undefined, families?: readonly IpFamily[]): DriverChoice =>
      choice?.driver === undefined ? this.#try(families) : choice;
    const all = kept(before?.all);
    // Where FoU is whole for all, or was not asked for, it is the same for each.
    const isSame = all.driver?.name === "fou" || this.#parts.asked === "vxlan";
    return {
      all,
      alone: isSame ? { 4: all, 6: all } : { 4: kept(before?.alone[4], [4]), 6: kept(before?.alone[6], [6]) },
    };
  }

  #try(families?: readonly IpFamily[]): DriverChoice {
    const { kernel, asked, log } = this.#parts;
    try {
      const { driver, lacking } = chooseDriver(kernel, asked, families);
      if (lacking.length > 0 && families === undefined)
        log.warn("this kernel lacks what fou needs; clients use vxlan", { lacking });
      return { driver };
    } catch (error) {
      if (!isRefusal(error)) throw error;
      return { fault: error.message };
    }
  }

  #tell(): void {
    const { health, onChosen, log } = this.#parts;
    const { all, alone } = this.#choices;
    const [one] = [all, alone[4], alone[6]].flatMap(({ driver }) => driver ?? []);
    onChosen(one?.name ?? "none");
    if (all.driver !== undefined) health.ok(all.driver.name);
    else health.degraded(all.fault);
    const families = ([4, 6] as const).filter((family) => alone[family].driver !== undefined);
    if (one === undefined) log.warn("pods that name an Egress cannot start on this node", { error: all.fault });
    else if (all.driver === undefined)
      log.warn("pods that name an Egress can start on this node only if they have addresses of one family alone", {
        families,
        error: all.fault,
      });
    if (one !== undefined) {
      const ofFamilies = Object.fromEntries(families.map((family) => [`ipv${family}`, alone[family].driver?.name]));
      const others = families.some((family) => alone[family].driver !== all.driver) ? ofFamilies : {};
      log.info("the tunnel driver of clients was chosen", { driver: all.driver?.name ?? "none", ...others });
    }
  }
}

/** The kernel still lacks what pods of all families need. */
class StillLacking extends ExpectedError<"lacking"> {
  override readonly name = "StillLacking";
}

const textOf = ({ all, alone }: Choices): string =>
  JSON.stringify([all, alone[4], alone[6]].map(({ driver, fault }) => [driver?.name, fault]));

function isRefusal(error: unknown): error is Error {
  return error instanceof TunnelError || isKernelError(error);
}
