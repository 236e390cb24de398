import { repeat, withDeadline } from "#base/async";
import { systemClock } from "#base/clock";
import { addressFlag, type Flag, type ListenAddress } from "#base/config";
import { resources } from "#kube/client";
import { type AddressPool, type AdmissionContext, coilAdmissions, coilResources, webhookPathOf } from "#kube/coil";
import type { Informer } from "#kube/informer";
import { admissionHandlers, CertificateRotation, type KeyPair, WebhookServer } from "#kube/webhook";
import type { ControllerReplica } from "../controller/index.ts";
import { webhookMetrics } from "./metrics.ts";

/** The intervals of TLS handshakes with the program's own webhooks, in milliseconds: until a handshake succeeds, and later. */
const UNTIL_READY_MS = 1_000;
const CHECK_MS = 10_000;
/** The longest time that a review waits for the first list of pools, in milliseconds; API servers wait 10 s by default. */
const POOLS_TIMEOUT_MS = 5_000;
/** The rotation's queue has this key and no other. */
const ROTATE = "certificate";

/** The secret, the authority, the names and the configurations of the pools' webhooks (docs/spec/pod-network.md#2.6). */
const NAMESPACE = "kube-system";
const SERVICE = "coilv2-ipam-webhook-service";
const ROTATION = {
  secret: { namespace: NAMESPACE, name: "coilv2-ipam-webhook-server-cert" },
  names: {
    authority: "coil-ipam-ca",
    organization: "coil",
    hosts: [`${SERVICE}.${NAMESPACE}.svc`, `${SERVICE}.${NAMESPACE}.svc.cluster.local`],
  },
  mutating: "coilv2-mutating-ipam-webhook-configuration",
  validating: "coilv2-validating-ipam-webhook-configuration",
};

/** The flag `--webhook-addr`: an address, or `none` (`undefined`) for a cluster without webhook configurations. */
export function webhookAddrFlag(initial: string): Flag<ListenAddress | undefined> {
  const address = addressFlag(
    "webhook-addr",
    initial,
    "address of the webhooks; none: this cluster has no webhook configurations",
  );
  return {
    ...address,
    parse: (text, before) => (text === "none" ? undefined : address.parse(text, before ?? { port: 0 })),
  };
}

/** The values of the flags of webhooks. */
export interface WebhookValues {
  readonly webhookAddr: ListenAddress | undefined;
  readonly certDir: string;
  readonly enableCertRotation: boolean;
  readonly enableRestartOnCertRefresh: boolean;
}

/** Serves the webhooks of AddressPools on this replica, whether it leads or not. */
export function serveWebhooks(replica: ControllerReplica, values: WebhookValues): void {
  const { webhookAddr } = values;
  if (webhookAddr === undefined) return;
  const log = replica.log.child("webhook");
  const metrics = webhookMetrics(replica.registry);
  const part = replica.health.part("webhook", { needed: "always" });
  const pools = replica.watch(coilResources.addressPools, { name: "webhook-addresspools" });
  let server: WebhookServer | undefined;
  let waiting: KeyPair | undefined;
  const use = (pair: KeyPair): void => {
    if (server === undefined) waiting = pair;
    else server.use(pair);
  };
  replica.run(async (signal) => {
    await using listening = await WebhookServer.listen({
      ...webhookAddr,
      certDir: values.certDir,
      handlers: handlersOf(pools),
      onAnswer: metrics.answered,
      onCertificate: metrics.certificate,
      log,
      clock: systemClock,
    });
    server = listening;
    log.info("webhooks listen", { port: listening.port });
    if (waiting !== undefined) listening.use(waiting);
    const check = async (): Promise<void> => {
      await listening.checkHealth({ signal });
      part.ok();
    };
    await repeat(check, {
      signal,
      everyMs: CHECK_MS,
      clock: systemClock,
      onFailure: (error) => part.degraded(error),
      retryAfterMs: () => UNTIL_READY_MS,
    });
  });
  if (values.enableCertRotation) rotate(replica, { use, renewed: metrics.renewed, values });
}

function handlersOf(pools: Informer<AddressPool, AddressPool>) {
  const rules = coilAdmissions.filter(({ type }) => type === coilResources.addressPools);
  return admissionHandlers<AdmissionContext>(
    new Map(rules.map((one) => [webhookPathOf(one.type), one])),
    async ({ signal }) => {
      await withDeadline(POOLS_TIMEOUT_MS, () => pools.synced, { signal });
      return { pools: pools.store.list() };
    },
  );
}

function rotate(
  { api, log, watch, control, end }: ControllerReplica,
  to: {
    readonly use: (pair: KeyPair) => void;
    readonly renewed: () => void;
    readonly values: WebhookValues;
  },
): void {
  const rotation = new CertificateRotation({ api, log: log.child("certificate"), clock: systemClock }, ROTATION, {
    onPair: (pair, { refreshed }) => {
      to.use(pair);
      if (refreshed && to.values.enableRestartOnCertRefresh) end("the webhooks' certificate was renewed");
    },
    onRenewed: to.renewed,
  });
  const controller = control("webhook-certificate", { reconcile: (_key, { signal }) => rotation.sync({ signal }) });
  const enqueue = (): void => controller.enqueue(ROTATE);
  const onAny = { onAdd: enqueue, onUpdate: enqueue, onDelete: enqueue };
  const named = (name: string) => ({ fieldSelector: `metadata.name=${name}` });
  const { secret, mutating, validating } = ROTATION;
  watch(resources.secrets, { namespace: secret.namespace, ...named(secret.name) }).addHandler(onAny);
  watch(resources.mutatingWebhookConfigurations, named(mutating)).addHandler(onAny);
  watch(resources.validatingWebhookConfigurations, named(validating)).addHandler(onAny);
  controller.enqueue(ROTATE);
}
