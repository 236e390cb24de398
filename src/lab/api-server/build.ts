import { randomBytes, randomUUID } from "node:crypto";
import { AccessLog } from "./auth/access-log.ts";
import { openAuthenticator, tokenAuthenticator } from "./auth/auth.ts";
import { bootstrapRoles } from "./auth/bootstrap.ts";
import { RbacAuthorizer } from "./auth/rbac.ts";
import { type FaultMatch, FaultPlan, matches } from "./faults/plan.ts";
import { expired } from "./handlers/list.ts";
import { Objects } from "./handlers/objects.ts";
import type { ServerState } from "./http/state.ts";
import { EventEncoder, type Watcher } from "./http/watch.ts";
import { CrdController } from "./lifecycle/crds.ts";
import { DeferredQueue } from "./lifecycle/deferred-queue.ts";
import { GarbageCollector } from "./lifecycle/garbage.ts";
import { NamespaceController } from "./lifecycle/namespaces.ts";
import { OpenApi } from "./openapi/index.ts";
import type { ApiServerOptions } from "./options.ts";
import { PolicyAdmission } from "./policies/policy-admission.ts";
import { builtinResources } from "./resources/builtin.ts";
import { Registry } from "./resources/registry.ts";
import { loadBuiltinDefinitions } from "./schema/index.ts";
import { seedObjects, systemNamespaces } from "./seed.ts";
import { DEFAULT_SERVICE_RANGES, serviceAllocator } from "./services/allocator.ts";
import { Store } from "./store/store.ts";
import { WebhookAdmission } from "./webhooks/webhook-admission.ts";

/** The number of changes kept for each resource, so that watches can resume; older watches get 410, and so do those from before five to ten minutes. */
const HISTORY = 2_000;

/** Builds a server from its parts: store, registry, controllers, with the namespaces and roles that every cluster has. */
export function buildState(options: ApiServerOptions): { state: ServerState; queue: DeferredQueue } {
  const { log, clock } = options;
  const store = new Store({ historyLimit: HISTORY });
  const registry = new Registry(loadBuiltinDefinitions(), builtinResources());
  const newSuffix = (): string =>
    Array.from(randomBytes(5), (byte) => "bcdfghjklmnpqrstvwxz2456789"[byte % 27]).join("");
  const objects = new Objects({
    store,
    registry,
    clock,
    newUid: randomUUID,
    newSuffix,
    admission: [
      ...(options.admission ?? []),
      ...(options.webhooks === undefined ? [] : [new WebhookAdmission(store, registry, options.webhooks)]),
      new PolicyAdmission(store),
      serviceAllocator(store, options.serviceRanges ?? DEFAULT_SERVICE_RANGES, Math.random),
    ],
  });
  const watchers = new Set<Watcher>();
  const queue = new DeferredQueue((error) => log.error("a controller of the API server failed", { error }));
  const deps = { store, registry, objects, queue };
  const garbage = new GarbageCollector(deps);
  const namespaces = new NamespaceController(deps);
  const endWatches = (storage: string): void => {
    for (const watcher of watchers) if (watcher.resource.storage === storage) watcher.close();
  };
  const crds = new CrdController({ ...deps, clock, endWatches });
  for (const controller of [crds, garbage, namespaces])
    store.onCommit((storage, event) => controller.observe(storage, event));
  const watchFault = (how: "drop" | "expire", match: FaultMatch | undefined): number =>
    endMatching(watchers, store, how, match ?? {});
  const faults = new FaultPlan({ watchFault });
  const tokens = new Map(Object.entries(options.tokens ?? {}));
  const authenticator = options.authenticator ?? (tokens.size === 0 ? openAuthenticator : tokenAuthenticator(tokens));
  const authorizer = options.authorizer ?? new RbacAuthorizer(store);
  const accessFolder = process.env["ISTHMUS_ACCESS_LOG"];
  const state: ServerState = {
    store,
    registry,
    objects,
    clock,
    log,
    authenticator,
    authorizer,
    accessLog: accessFolder === undefined ? undefined : new AccessLog(accessFolder, authorizer),
    reviewedTokens: options.reviewedTokens ?? new Map(),
    kubelets: options.kubelets,
    upgraded: new Set(),
    faults,
    faultsOverHttp: options.faultsOverHttp === true,
    openapi: new OpenApi(registry),
    encoder: new EventEncoder(clock),
    watchers,
    random: Math.random,
  };
  const cidrs = (options.serviceRanges ?? DEFAULT_SERVICE_RANGES).cidrs.map(String);
  const serviceCIDR = {
    apiVersion: "networking.k8s.io/v1",
    kind: "ServiceCIDR",
    metadata: { name: "kubernetes" },
    spec: { cidrs },
  };
  seedObjects(state, [...systemNamespaces(), ...bootstrapRoles(), serviceCIDR]);
  return { state, queue };
}

function endMatching(watchers: ReadonlySet<Watcher>, store: Store, how: "drop" | "expire", match: FaultMatch): number {
  let count = 0;
  for (const watcher of [...watchers]) {
    const { group, plural } = watcher.resource;
    const subject = {
      verb: "watch",
      group,
      resource: plural,
      subresource: "",
      namespace: watcher.namespace,
      name: "",
      userAgent: match.userAgent ?? "",
    };
    if (!matches(match, subject)) continue;
    if (how === "drop") watcher.cut("fault");
    else watcher.fail(expired(0, store.revision));
    count += 1;
  }
  return count;
}
