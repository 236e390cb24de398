import type { AbortOptions } from "#base/async";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import type { VpcProvider } from "#cloud/vpc";
import { findObject, type KubeApi } from "#kube/client";
import { NIC_POLICY_NAME, type NicPolicySpec, nicResources } from "#kube/nic";
import { nicMetrics } from "./metrics.ts";
import { openProvider, type ProviderEntry, providerEntries } from "./providers.ts";

/** The providers of a policy for one command, each opened when it is asked first. Requests are not limited, so a command makes few. Disposing closes all. */
export class CommandProviders implements AsyncDisposable {
  readonly entries: readonly ProviderEntry[];
  readonly #credentials: string;
  readonly #opened = new Map<string, VpcProvider>();

  /** `credentials`: a file, or a folder with a file for each provider. */
  constructor(policy: NicPolicySpec, credentials: string) {
    this.entries = providerEntries(policy);
    this.#credentials = credentials;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const provider of this.#opened.values()) await provider[Symbol.asyncDispose]();
    this.#opened.clear();
  }

  /** Asks nothing. Throws `NicControllerError`, whose message has no secret. */
  get(entry: ProviderEntry): VpcProvider {
    const known = this.#opened.get(entry.name);
    if (known !== undefined) return known;
    const metrics = nicMetrics(createRegistry());
    const opened = openProvider(entry, this.#credentials, { metrics, log: nullLogger });
    this.#opened.set(entry.name, opened);
    return opened;
  }
}

/** The policy of a cluster; `undefined` without one. Rejects with `KubeError`. */
export async function readNicPolicy(api: KubeApi, options: AbortOptions): Promise<NicPolicySpec | undefined> {
  const found = await findObject(api, nicResources.nicPolicies, { name: NIC_POLICY_NAME }, options);
  return found === undefined ? undefined : (found.spec ?? {});
}
