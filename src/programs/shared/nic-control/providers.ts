import { statSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { readBounded } from "#base/file";
import type { Logger } from "#base/log";
import { parseCredentials } from "#cloud/keystone";
import { CLOUDS, CloudConfigError, type VpcProvider } from "#cloud/vpc";
import { GuardedProvider, NicControllerError } from "#features/nic-controller";
import type { NicPolicySpec } from "#kube/nic";
import type { NicMetrics } from "./metrics.ts";

/** A provider as a policy has it. */
export type ProviderEntry = NonNullable<NicPolicySpec["providers"]>[number];

/** The provider of a policy that names none. */
const DEFAULT: ProviderEntry = { name: "neutron", type: "neutron" };
/** A provider that was replaced is closed after this time, in milliseconds: its last requests have ended. */
const CLOSE_AFTER_MS = 90_000;

export interface ProvidersDeps {
  readonly policy: () => NicPolicySpec;
  readonly isLeading: () => boolean;
  readonly metrics: NicMetrics;
  readonly log: Logger;
}

interface Opened {
  readonly provider: VpcProvider;
  /** The settings with which it was opened. */
  readonly settings: string;
}

/** The providers of the policy, opened with the credentials of a file. Disposing closes all. */
export class Providers implements AsyncDisposable {
  readonly #deps: ProvidersDeps;
  readonly #credentials: string;
  readonly #opened = new Map<string, Opened>();
  /** Providers that were replaced, and what cancels their timers. */
  readonly #closing = new Map<VpcProvider, () => void>();

  /** `credentials`: a file, or a folder with a file for each provider. */
  constructor(deps: ProvidersDeps, credentials: string) {
    this.#deps = deps;
    this.#credentials = credentials;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cancel of this.#closing.values()) cancel();
    const all = [...this.#closing.keys(), ...Array.from(this.#opened.values(), ({ provider }) => provider)];
    this.#closing.clear();
    this.#opened.clear();
    for (const provider of all) await provider[Symbol.asyncDispose]();
  }

  /** The names of all providers. */
  names(): readonly string[] {
    return providerEntries(this.#deps.policy()).map(({ name }) => name);
  }

  /** The files with credentials, for a watch. */
  files(): readonly string[] {
    return [this.#credentials, ...this.names().map((name) => join(this.#credentials, `${name}.yaml`))];
  }

  /** The provider of a name; the default one without a name. Throws `NicControllerError` with `unknown-provider`. */
  get(name: string | undefined): VpcProvider {
    const entry = entryOf(this.#deps.policy(), name);
    const known = this.#opened.get(entry.name);
    return known?.provider ?? this.#open(entry, this.#settingsOf(entry)).provider;
  }

  /** The policy or a file has changed: a provider with other settings is opened again. What cannot be opened stays as it was. */
  reload(): void {
    for (const [name, { provider, settings }] of this.#opened) {
      try {
        const entry = entryOf(this.#deps.policy(), name);
        const now = this.#settingsOf(entry);
        if (now === settings) continue;
        this.#open(entry, now);
        this.#deps.log.info("provider opened again, with other settings", { provider: name });
      } catch (error) {
        if (!(error instanceof NicControllerError)) throw error;
        this.#deps.log.warn("provider keeps its settings", { provider: name, error: error.message });
        continue;
      }
      const cancel = systemClock.after(CLOSE_AFTER_MS, () => {
        this.#closing.delete(provider);
        void provider[Symbol.asyncDispose]();
      });
      this.#closing.set(provider, cancel);
    }
  }

  #open(entry: ProviderEntry, settings: string): Opened {
    const opened = { provider: this.#guarded(entry), settings };
    this.#opened.set(entry.name, opened);
    return opened;
  }

  #guarded(entry: ProviderEntry): VpcProvider {
    const { isLeading } = this.#deps;
    return new GuardedProvider({
      provider: openProvider(entry, this.#credentials, this.#deps),
      clock: systemClock,
      isLeading,
    });
  }

  #settingsOf(entry: ProviderEntry): string {
    const text = unknownUnless(entry.name, () => readBounded(fileOf(entry, this.#credentials)));
    return JSON.stringify([entry, text]);
  }
}

/** Opens the provider of an entry with the credentials of a file, or of a folder. It asks nothing. Throws `NicControllerError`. */
export function openProvider(
  entry: ProviderEntry,
  credentials: string,
  { metrics, log: parent }: Pick<ProvidersDeps, "metrics" | "log">,
): VpcProvider {
  const { name, type, config } = entry;
  const cloud = CLOUDS.find((one) => one.type === type);
  if (cloud === undefined) throw new NicControllerError("unknown-provider", `provider ${name}: no cloud is a ${type}`);
  return unknownUnless(name, () => {
    const access = parseCredentials(readBounded(fileOf(entry, credentials)));
    return cloud.open(
      { clock: systemClock, log: parent.child(name) },
      {
        name,
        config,
        access,
        ca: access.caFile === undefined ? undefined : readBounded(access.caFile),
        onRefresh: metrics.refreshed,
        onRequest: metrics.requested,
        onCircuit: (isOpen: boolean) => metrics.circuit(name, isOpen),
        onCreate: metrics.bulk,
      },
    );
  });
}

function fileOf({ name }: ProviderEntry, credentials: string): string {
  const isFolder = statSync(credentials, { throwIfNoEntry: false })?.isDirectory() === true;
  return isFolder ? join(credentials, `${name}.yaml`) : credentials;
}

/** All providers of a policy; without one, the default one. Pure. */
export function providerEntries({ providers = [] }: NicPolicySpec): readonly ProviderEntry[] {
  return providers.length === 0 ? [DEFAULT] : providers;
}

/** The entry of a name, or the default one. Throws `NicControllerError`. */
function entryOf(policy: NicPolicySpec, name: string | undefined): ProviderEntry {
  const all = providerEntries(policy);
  const only = all.length === 1 ? all[0] : undefined;
  const entry =
    name === undefined ? (all.find((one) => one.default === true) ?? only) : all.find((one) => one.name === name);
  if (entry !== undefined) return entry;
  const why = name === undefined ? "none of several providers is the default one" : `there is no provider ${name}`;
  throw new NicControllerError("unknown-provider", `the NicPolicy: ${why}`);
}

/** Faults of files and of the config as one of the provider. */
function unknownUnless<Value>(name: string, open: () => Value): Value {
  try {
    return open();
  } catch (error) {
    if (!(error instanceof ExpectedError) || error instanceof NicControllerError) throw error;
    const text =
      error instanceof CloudConfigError ? error.message : `provider ${name} cannot be opened: ${error.message}`;
    throw new NicControllerError("unknown-provider", text);
  }
}
