import { existsSync } from "node:fs";
import type { Clock } from "#base/clock";
import { isEqual } from "#base/collections";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { Settings } from "#base/uplink-model";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import { hasTransparent, installTransparent, keepTransparent, removeTransparent } from "./transparent.ts";
import { type TransparentMarks, transparentMarks } from "./transparent-plan.ts";
import { HEARTBEAT_MS } from "./watchdog.ts";

/** The watchdog process, which outlives the proxy. */
export interface Watchdog {
  /** False once the watchdog has ended, or if it could not be started. */
  readonly isAlive: boolean;
  /** True once the watchdog watches: from then on it notices the end of the proxy. */
  readonly isReady: boolean;
  /** Sends a heartbeat. */
  heartbeat(): void;
  /** Tells the watchdog that the proxy ends and has removed the redirection itself. */
  disarm(): void;
}

export type TransparentErrorCode = "no-watchdog";

/** Connections are not redirected although the settings want it. */
export class TransparentError extends ExpectedError<TransparentErrorCode> {
  override readonly name = "TransparentError";
}

/** Pause before a watchdog that ended before it was ready is started again, in milliseconds. */
const RESTART_MS = 5000;
/** Redirection ends this many seconds after the last renewal, even if no program removes the rules. */
const LEASE_S = 2;

export interface TransparentKeeperDeps {
  readonly stack: Pick<NetStack, "addresses" | "routes" | "rules">;
  readonly nft: Nft;
  /** Returns the present settings. */
  readonly settings: () => Settings;
  /** Returns true if the listeners of transparent mode accept connections and the proxy is healthy. */
  readonly healthy: () => boolean;
  /** Starts a process that ends with `runTransparentWatchdog` for these marks. */
  readonly startWatchdog: (marks: TransparentMarks) => Watchdog;
  readonly health: HealthPart;
  readonly log: Logger;
  readonly clock: Clock;
}

export interface TransparentKeeperOptions {
  /** While this file exists nothing is redirected (docs/spec/uplink-proxy.md#14). */
  readonly offSwitch: string;
  /** The user whose connections are not redirected. Absent if the proxy runs as root, because other programs run as root too. */
  readonly ownUid?: number;
}

/** Keeps the redirection in place as long as the settings want it, the proxy is healthy, and a watchdog watches. */
export class TransparentKeeper {
  readonly #deps: TransparentKeeperDeps;
  readonly #options: TransparentKeeperOptions;
  readonly #log: Logger;
  readonly #clock: Clock;
  /** `startedAt`: monotonic milliseconds. */
  #watchdog: { readonly process: Watchdog; readonly marks: TransparentMarks; readonly startedAt: number } | undefined;
  #installed: { readonly settings: Settings; readonly marks: TransparentMarks } | undefined;

  constructor(deps: TransparentKeeperDeps, options: TransparentKeeperOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#log = deps.log;
    this.#clock = deps.clock;
  }

  /** True if connections are redirected right now. */
  get isInstalled(): boolean {
    return this.#installed !== undefined;
  }

  /** Runs until the signal aborts, then removes everything. At the start it removes the objects of an earlier run. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { settings } = this.#deps;
    const clock = this.#clock;
    this.#guarded(() => void this.#remove(transparentMarks(settings())));
    await repeat(async () => this.#guarded(() => this.#tick()), { signal, clock, everyMs: HEARTBEAT_MS });
    this.#guarded(() => {
      this.#withdraw("the proxy is stopping");
      this.#watchdog?.process.disarm();
    });
  }

  #guarded(work: () => void): void {
    const { health } = this.#deps;
    try {
      work();
      health.ok(this.isInstalled ? "connections are redirected" : "nothing is redirected");
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      health.degraded(error);
    }
  }

  #tick(): void {
    const settings = this.#deps.settings();
    const reason = this.#reasonAgainst(settings);
    if (reason === undefined) {
      const marks = transparentMarks(settings);
      if (this.#isWatched(marks)) this.#put(settings, marks);
    } else {
      this.#withdraw(reason);
    }
    this.#watchdog?.process.heartbeat();
  }

  /** Returns true if a watchdog for these marks watches; nothing is redirected without one. Throws {@link TransparentError}. */
  #isWatched(marks: TransparentMarks): boolean {
    const is = this.#watchdog;
    const fits = is !== undefined && isEqual(is.marks, marks);
    if (fits && is.process.isAlive) return is.process.isReady;
    this.#withdraw(fits ? "the watchdog has ended" : "it changes");
    const now = this.#clock.monotonic();
    if (fits && !is.process.isReady && now - is.startedAt < RESTART_MS) {
      throw new TransparentError(
        "no-watchdog",
        `connections are not redirected: the watchdog could not be started; trying again after ${RESTART_MS / 1000} s`,
      );
    }
    if (is?.process.isAlive === true) is.process.disarm();
    this.#watchdog = { process: this.#deps.startWatchdog(marks), marks, startedAt: now };
    return this.#watchdog.process.isReady;
  }

  #reasonAgainst(settings: Settings): string | undefined {
    if (!settings.transparent.enabled) return "transparent mode is not enabled in the settings";
    if (existsSync(this.#options.offSwitch)) return `${this.#options.offSwitch} exists`;
    return this.#deps.healthy() ? undefined : "the proxy's health check fails";
  }

  #put(settings: Settings, marks: TransparentMarks): void {
    const { stack, nft } = this.#deps;
    const isKnown = this.#installed?.settings === settings;
    if (isKnown && hasTransparent(stack, nft, settings) && keepTransparent(nft, LEASE_S)) return;
    if (!isKnown) this.#withdraw("it changes");
    const { ownUid } = this.#options;
    const own = ownUid ? { ownUid } : {};
    installTransparent(stack, nft, settings, { log: this.#log, leaseSeconds: LEASE_S, ...own });
    this.#installed = { settings, marks };
    this.#log.info("transparent mode redirects connections", { ports: settings.transparent.ports });
  }

  #withdraw(reason: string): void {
    if (this.#installed === undefined) return;
    this.#remove(this.#installed.marks);
    this.#installed = undefined;
    this.#log.info("transparent mode is off", { reason });
  }

  #remove(marks: TransparentMarks): number {
    return removeTransparent(this.#deps.stack, this.#deps.nft, marks);
  }
}
