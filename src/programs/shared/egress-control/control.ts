import { type AbortOptions, Backoff, retry, withDeadline } from "#base/async";
import { systemClock } from "#base/clock";
import { choiceFlag, type FlagValues, integerFlag, optionalFlag, repeatedFlag } from "#base/config";
import { Cidr } from "#base/ip";
import { EgressReconciler, egressOfPool, type RouterSettings, reconcileBinding } from "#features/egress-controller";
import { isApiFailure, resources, type ServiceAccount } from "#kube/client";
import {
  type AddressPool,
  coilResources,
  type Egress,
  egressPoolName,
  ROUTER_ACCOUNT,
  ROUTER_BINDINGS,
} from "#kube/coil";
import type { Informer } from "#kube/informer";
import type { LeaderPart, LeadingController } from "../controller/index.ts";
import type { metricsAuthorizationFlag, metricsFromFlag } from "../http-endpoints/index.ts";
import type { Webhooks } from "../webhooks/index.ts";
import { ClientCounts, COUNTED_POD_INDEXES, countedNamespace, countedPod } from "./client-counts.ts";
import { OwnPod } from "./own-pod.ts";

/** The flags of the controller of Egresses. */
export const egressFlags = {
  egressPort: integerFlag("egress-port", 5555, "UDP port of the tunnels and of the Services", { min: 1, max: 65_535 }),
  backend: choiceFlag("backend", ["iptables", "nftables"], "iptables", "packet filter of the routers"),
  tunnelDriver: choiceFlag(
    "tunnel-driver",
    ["fou", "vxlan", "auto"],
    "fou",
    "how routers carry packets; the same as coild's",
  ),
  egressAddressRange: repeatedFlag(
    "egress-address-range",
    (text) => Cidr.parse(text),
    "a range that Egresses may have addresses of (spec.addresses); default: none may",
    "CIDR",
  ),
  inClusterCidr: repeatedFlag(
    "in-cluster-cidr",
    (text) => Cidr.parse(text),
    "a range that a wider destination of an Egress does not open in routers; the same as coild's; default: the private ranges",
    "CIDR",
  ),
  image: optionalFlag("image", "image of the routers; default: that of this program's own pod", "IMAGE"),
};

/** Egresses that are reconciled at once. Each has up to four requests under way, of which the client lets 32 through. */
const WORKERS = 16;
/** The time for which a review waits for the webhooks' view of pools and Egresses, milliseconds. */
const CACHES_TIMEOUT_MS = 5000;
/** The pauses between the tries of one key after failures: a namespace without an account, or a name that is taken, is mended by people. */
const RETRY = { initialMs: 50, maxMs: 30_000 };

/** The controller of Egresses in a program: what its leader does, and its webhooks. */
export interface EgressController {
  readonly leader: LeaderPart;
  readonly webhooks: Webhooks;
}

/** Throws `ConfigError` if the image of routers is neither given nor that of a named pod. */
export function egressController(
  values: FlagValues<typeof egressFlags & typeof metricsFromFlag & typeof metricsAuthorizationFlag>,
): EgressController {
  const own = new OwnPod(process.env);
  const {
    backend,
    tunnelDriver,
    egressPort: port,
    egressAddressRange: addressRanges,
    inClusterCidr: inCluster,
    metricsFrom,
    metricsAuthorization,
  } = values;
  const image = values.image === "" ? undefined : values.image;
  if (image === undefined) own.requireNamed();
  return {
    leader: {
      lease: "coil-egress-leader",
      setUp: (leading) => {
        const egresses = leading.watch(coilResources.egresses);
        const router = async (options: AbortOptions): Promise<RouterSettings> => ({
          ...(image === undefined ? await own.image(leading.api, options) : { image }),
          backend,
          tunnelDriver,
          port,
          inCluster,
          metricsFrom,
          metricsAuthorization,
        });
        controlEgresses(leading, egresses, { router, addressRanges });
        controlRights(leading, egresses);
      },
    },
    webhooks: {
      part: "egress",
      type: coilResources.egresses,
      context: ({ api, run, watch }) => {
        if (own.isNamed) run((signal) => readAddresses(own, api, signal));
        if (addressRanges.length === 0) return async () => ({ dualStack: own.isDualStack, addressRanges });
        const pools = watch(coilResources.addressPools, { name: "egress-webhook-addresspools" });
        const egresses = watch(coilResources.egresses, { name: "egress-webhook-egresses" });
        return async ({ signal }) => {
          await withDeadline(CACHES_TIMEOUT_MS, () => Promise.all([pools.synced, egresses.synced]), { signal });
          const known = { pools: pools.store.list(), egresses: egresses.store.list() };
          return { dualStack: own.isDualStack, addressRanges, ...known };
        };
      },
    },
  };
}

/** Reads the own pod, whose addresses tell whether the cluster has both families. Without them reviews only lack a warning. */
async function readAddresses(own: OwnPod, api: LeadingController["api"], signal: AbortSignal): Promise<void> {
  const backoff = new Backoff({ initialMs: 1000, maxMs: 60_000 });
  await retry(() => own.readAddresses(api, { signal }), {
    backoff,
    isPassing: isApiFailure,
    signal,
    clock: systemClock,
  });
}

type Egresses = Informer<Egress, Egress>;

/** The objects of each Egress. */
function controlEgresses(
  { api, log, watch, control, run }: LeadingController,
  egresses: Egresses,
  { router, addressRanges }: Pick<ConstructorParameters<typeof EgressReconciler>[0], "router" | "addressRanges">,
): void {
  const component = { labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress" };
  const deployments = watch(resources.deployments, component);
  const services = watch(resources.services, component);
  const budgets = watch(resources.podDisruptionBudgets, component);
  const accounts = watch(resources.serviceAccounts, { fieldSelector: `metadata.name=${ROUTER_ACCOUNT}` });
  // Only with ranges: else no Egress has a pool, and no right is needed.
  const pools = addressRanges.length === 0 ? undefined : watch(coilResources.addressPools, component);
  // Routers do not wait for these: with former rights only the status lacks the numbers.
  const counts: ClientCounts = new ClientCounts({
    egresses,
    pods: watch(resources.pods, { transform: countedPod, indexers: COUNTED_POD_INDEXES, isOptional: true }),
    namespaces: watch(resources.namespaces, { transform: countedNamespace, isOptional: true }),
    onChange: (key) => controller.enqueue(key),
    clock: systemClock,
  });
  run((signal) => counts.run({ signal }));
  const caches = {
    pool: (key: string) => {
      const [namespace = "", name = ""] = key.split("/");
      return pools?.store.get(egressPoolName({ namespace, name }));
    },
    egress: (key: string) => egresses.store.getByKey(key),
    deployment: (key: string) => deployments.store.getByKey(key),
    service: (key: string) => services.store.getByKey(key),
    budget: (key: string) => budgets.store.getByKey(key),
    account: (namespace: string) => accounts.store.get(ROUTER_ACCOUNT, namespace),
    clients: (key: string) => counts.of(key),
  };
  const reconciler = new EgressReconciler({ api, caches, router, addressRanges, log: log.child("egress") });
  // The objects of an Egress have its name, so their keys are its key.
  const controller = control("egress", {
    of: egresses,
    on: [egresses, deployments, services, budgets],
    after: [accounts, ...(pools === undefined ? [] : [pools])],
    reconcile: (key, { signal }) => reconciler.reconcile(key, { signal }),
    workers: WORKERS,
    retry: RETRY,
  });
  const enqueueOf = (pool: AddressPool): void => {
    const key = egressOfPool(pool);
    if (key !== undefined) controller.enqueue(key);
  };
  pools?.addHandler({ onAdd: enqueueOf, onUpdate: (_before, after) => enqueueOf(after), onDelete: enqueueOf });
  const enqueueAllOf = ({ metadata: { namespace } }: ServiceAccount): void => {
    for (const { metadata } of egresses.store.values()) {
      if (metadata.namespace === namespace) controller.enqueue(`${namespace}/${metadata.name}`);
    }
  };
  const secretsOf = ({ imagePullSecrets = [] }: ServiceAccount): string => JSON.stringify(imagePullSecrets);
  accounts.addHandler({
    onUpdate: (before, after) => {
      if (secretsOf(before) !== secretsOf(after)) enqueueAllOf(after);
    },
    onDelete: enqueueAllOf,
  });
}

/** The rights of all routers. */
function controlRights({ api, log, watch, control }: LeadingController, egresses: Egresses): void {
  const bindings = watch(resources.clusterRoleBindings, {
    transform: ({ metadata: { name, uid, resourceVersion } }) => ({ metadata: { name, uid, resourceVersion } }),
  });
  const rights = control("clusterrolebinding", {
    after: [egresses, bindings],
    reconcile: (name, { signal }) => {
      const namespaces = egresses.store.list().map(({ metadata: { namespace = "" } }) => namespace);
      return reconcileBinding({ api, log: log.child("rights") }, name, namespaces, { signal });
    },
    retry: RETRY,
  });
  /** The first binding must exist, so its absence is a failure that is told; the second one may. */
  const enqueue = (name: string): void => {
    if (name === ROUTER_ACCOUNT || (ROUTER_BINDINGS.includes(name) && bindings.store.get(name) !== undefined))
      rights.enqueue(name);
  };
  const all = (): void => ROUTER_BINDINGS.forEach(enqueue);
  egresses.addHandler({ onAdd: all, onDelete: all });
  const one = ({ metadata: { name } }: { readonly metadata: { readonly name: string } }): void => enqueue(name);
  bindings.addHandler({ onAdd: one, onUpdate: (_before, after) => one(after), onDelete: one });
}
