import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";

/** The time for which a server may have no agent before that is told, in milliseconds: agents without any server try each second, and thousands wait in a queue after a start. */
export const AGENTLESS_MS = 30_000;

export interface AgentlessDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** False while the server needs no agent: it ends, or waits for its turn. */
  readonly shouldHaveAgents: () => boolean;
}

/** Names a server that should have agents and has none: its frontends are refused, while other servers may have all agents. */
export class Agentless {
  readonly #deps: AgentlessDeps;
  readonly #options: { readonly serverID: string; readonly serverCount: () => number };
  #cancel: (() => void) | undefined;
  #isEmpty: boolean | undefined;
  #isTold = false;

  constructor(deps: AgentlessDeps, options: { readonly serverID: string; readonly serverCount: () => number }) {
    this.#deps = deps;
    this.#options = options;
  }

  /** To be called at the start, and after each change of the agents. */
  update(isEmpty: boolean): void {
    if (isEmpty === this.#isEmpty) return;
    this.#isEmpty = isEmpty;
    this.stop();
    if (isEmpty) {
      this.#watch();
    } else if (this.#isTold) {
      this.#isTold = false;
      this.#deps.log.info("agents are connected again", { serverID: this.#options.serverID });
    }
  }

  /** Tells nothing more. Idempotent. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #watch(): void {
    this.#cancel = this.#deps.clock.after(AGENTLESS_MS, () => this.#tell(), { unref: true });
  }

  #tell(): void {
    if (!this.#deps.shouldHaveAgents()) {
      this.#watch();
      return;
    }
    this.#isTold = true;
    const { serverID, serverCount } = this.#options;
    this.#deps.log.warn("no agent is connected to this server, and its frontends are refused", {
      serverID,
      // Agents look for as many servers as these say.
      serverCount: serverCount(),
      hint: "agents connect to as many servers as --server-count of the servers, or Leases, say; see their logs for why they do not reach this one",
    });
  }
}
