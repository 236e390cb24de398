import type { Duplex } from "node:stream";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { AccessLog } from "../auth/access-log.ts";
import type { Authenticator, Authorizer } from "../auth/auth.ts";
import type { FaultPlan } from "../faults/plan.ts";
import type { Objects } from "../handlers/objects.ts";
import type { ReviewedTokens } from "../handlers/token-review.ts";
import type { OpenApi } from "../openapi/index.ts";
import type { Registry } from "../resources/registry.ts";
import type { Store } from "../store/store.ts";
import type { KubeletAccess } from "./kubelet-request.ts";
import type { EventEncoder, Watcher } from "./watch.ts";

/** The shared state of all request handlers. */
export interface ServerState {
  readonly store: Store;
  readonly registry: Registry;
  readonly objects: Objects;
  readonly clock: Clock;
  readonly log: Logger;
  readonly authenticator: Authenticator;
  readonly authorizer: Authorizer;
  /** `undefined`: nobody wants to know. */
  readonly accessLog: AccessLog | undefined;
  readonly reviewedTokens: ReviewedTokens;
  /** `undefined`: the server cannot reach nodes. */
  readonly kubelets: KubeletAccess | undefined;
  /** Connections that have changed their protocol, which the HTTP server does not track any more. */
  readonly upgraded: Set<Duplex>;
  readonly faults: FaultPlan;
  readonly faultsOverHttp: boolean;
  readonly openapi: OpenApi;
  readonly encoder: EventEncoder;
  readonly watchers: Set<Watcher>;
  readonly random: () => number;
}
