import type { Clock } from "#base/clock";
import type { NeutronClient, NeutronSecurityGroup } from "#cloud/neutron";
import { ProviderError } from "../errors.ts";
import { ResolveCache } from "../resolve-cache.ts";
import { isUuid } from "../uuid.ts";
import { translated } from "./translated.ts";

/** For which project a group is looked up, and whether it may be of another one. */
export interface GroupScope {
  readonly projectId: string | undefined;
  readonly trustsGroups: boolean | undefined;
}

/** The security groups that NICs name, looked up at most once a minute. */
export class SecurityGroups {
  readonly #deps: {
    readonly neutron: NeutronClient;
    /** Does a look-up in its turn. */
    readonly looked: <Value>(look: () => Promise<Value>) => Promise<Value>;
    /** Ends all look-ups. */
    readonly signal: AbortSignal;
  };
  readonly #ids: ResolveCache<string>;

  constructor({
    clock,
    ...deps
  }: {
    readonly neutron: NeutronClient;
    readonly clock: Clock;
    readonly looked: <Value>(look: () => Promise<Value>) => Promise<Value>;
    readonly signal: AbortSignal;
  }) {
    this.#deps = deps;
    this.#ids = new ResolveCache({ clock });
  }

  /** The id of the group of a name or an id. Rejects with {@link ProviderError}. */
  async idOf(ref: string, scope: GroupScope, signal: AbortSignal | undefined): Promise<string> {
    const { projectId = "", trustsGroups = false } = scope;
    return this.#ids.get(
      `${trustsGroups}/${projectId}/${ref}`,
      () => this.#deps.looked(() => this.#resolveGroup(ref, scope)),
      {
        signal,
      },
    );
  }

  async #resolveGroup(ref: string, { projectId, trustsGroups }: GroupScope): Promise<string> {
    const by = isUuid(ref) ? { id: ref.toLowerCase() } : { name: ref, projectId };
    const [first, second] = await translated(this.#deps.neutron.listSecurityGroups(by, { signal: this.#deps.signal }));
    if (first === undefined) {
      throw new ProviderError("SecurityGroupNotFound", `there is no security group ${ref}`, { retry: "slow" });
    }
    if (second !== undefined) {
      throw new ProviderError(
        "AmbiguousSecurityGroup",
        `several security groups are named ${ref}: write the id of one`,
        {
          retry: "slow",
        },
      );
    }
    if (trustsGroups !== true) await this.#requireUsable(first, projectId);
    return first.id;
  }

  /**
   * Neutron lets an administrator put a port into a group of any project, and the rules of that project's other ports then let it in. A tenant must not
   * do that through the controller.
   */
  async #requireUsable(group: NeutronSecurityGroup, projectId: string | undefined): Promise<void> {
    if (projectId === undefined || ["", projectId].includes(group.projectId)) return;
    const { signal } = this.#deps;
    if (await translated(this.#deps.neutron.isGroupShared(group.id, { projectId, signal }))) return;
    throw new ProviderError(
      "SecurityGroupNotFound",
      `there is no security group ${group.id} in project ${projectId}, nor one that is shared with it`,
      { retry: "slow" },
    );
  }
}
