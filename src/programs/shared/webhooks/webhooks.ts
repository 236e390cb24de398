import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import {
  addressFlag,
  ConfigError,
  type Flag,
  type ListenAddress,
  listFlag,
  stringFlag,
  switchFlag,
} from "#base/config";
import { repeat } from "#base/reconcile";
import { type KubeObject, type ResourceType, resources } from "#kube/client";
import { type AdmissionContext, type CoilAdmission, coilAdmissions, webhookPathOf } from "#kube/coil";
import {
  type AdmissionHandler,
  admissionHandlers,
  type Callers,
  CertificateRotation,
  type KeyPair,
  WebhookServer,
} from "#kube/webhook";
import type { ControllerReplica } from "../controller/index.ts";
import { type WebhookMetrics, webhookMetrics } from "./metrics.ts";

/** The intervals of TLS handshakes with the program's own webhooks, in milliseconds: until a handshake succeeds, and later. */
const UNTIL_READY_MS = 1_000;
const CHECK_MS = 10_000;
/** The time that the first pair of a rotation may take, in milliseconds: until then a handshake that fails is no fault. */
const FIRST_PAIR_MS = 10_000;
/** The rotation's queue has this key and no other. */
const ROTATE = "certificate";

const NAMESPACE = "kube-system";

/** The part of the names of Secret, Service, authority and configurations. */
type Part = "ipam" | "egress" | "nic";

/** The webhooks of one kind of Coil's objects (docs/spec/pod-network.md#2.6). */
export interface Webhooks {
  readonly part: "ipam" | "egress";
  readonly type: CoilAdmission["type"];
  /** Informs the rules about the cluster. It is called once; the function that it returns is called for each review. */
  readonly context: (
    replica: ControllerReplica,
  ) => (options: { readonly signal: AbortSignal }) => Promise<AdmissionContext>;
}

/** Webhooks with handlers of their own. */
export interface OwnWebhooks {
  readonly part: "nic";
  /** The handlers by path. It is called once. */
  readonly handlers: (replica: ControllerReplica) => Readonly<Record<string, AdmissionHandler>>;
}

/** The names of the webhooks of pods with NICs, which are not Coil's. */
export const NIC_NAMES = {
  secret: { namespace: NAMESPACE, name: "nic-webhook-server-cert" },
  names: {
    authority: "isthmus-nic-ca",
    organization: "isthmus",
    hosts: [`nic-webhook-service.${NAMESPACE}.svc`, `nic-webhook-service.${NAMESPACE}.svc.cluster.local`],
  },
  mutating: "isthmus-mutating-nic-webhook-configuration",
  validating: "isthmus-validating-nic-webhook-configuration",
};

/** The secret, the authority, the names and the configurations of webhooks. */
function rotationOf(part: Part) {
  if (part === "nic") return NIC_NAMES;
  const service = `coilv2-${part}-webhook-service`;
  return {
    secret: { namespace: NAMESPACE, name: `coilv2-${part}-webhook-server-cert` },
    names: {
      authority: `coil-${part}-ca`,
      organization: "coil",
      hosts: [`${service}.${NAMESPACE}.svc`, `${service}.${NAMESPACE}.svc.cluster.local`],
    },
    mutating: `coilv2-mutating-${part}-webhook-configuration`,
    validating: `coilv2-validating-${part}-webhook-configuration`,
  };
}

/** The names of all webhooks of the suite: configurations, and the Secret of their servers' certificate. */
export const WEBHOOK_NAMES = (["ipam", "egress", "nic"] as const).map(rotationOf);

/** The default addresses; the Services of the manifests have these ports. */
const ADDRESSES: Readonly<Record<Part, string>> = { ipam: ":9443", egress: ":9444", nic: ":9445" };

/** The flags of a program with the webhooks of these parts. `webhookAddr` is of the first one. */
export const webhookFlags = (...parts: readonly [Part, ...Part[]]) => ({
  webhookAddr: webhookAddrFlag("webhook-addr", parts[0]),
  certDir: stringFlag(
    "cert-dir",
    "/certs",
    "folder of the webhooks' tls.crt and tls.key; the files may be created later",
    "DIR",
  ),
  webhookClientCa: stringFlag(
    "webhook-client-ca",
    "",
    "certificates of the authority that signs API servers' client certificates: reviews are taken from them alone; empty: from everybody who reaches the port",
    "FILE",
  ),
  webhookClientName: listFlag(
    "webhook-client-name",
    "common name of an API server's client certificate; may be given several times; none: every certificate of the authority",
    "NAME",
  ),
  enableCertRotation: switchFlag(
    "enable-cert-rotation",
    false,
    `make and renew the certificate, in Secret ${parts.map((part) => `${NAMESPACE}/${rotationOf(part).secret.name}`).join(" and ")}, and write its authority into the webhook configurations`,
  ),
  enableRestartOnCertRefresh: switchFlag(
    "enable-restart-on-cert-refresh",
    false,
    "end the program after a certificate was renewed, so that it starts again with the new one",
  ),
});

/** The flag of the address of a part's webhooks: an address, or `none` (`undefined`) for a cluster without webhook configurations. */
export function webhookAddrFlag(name: string, part: Part): Flag<ListenAddress | undefined> {
  const of = name === "webhook-addr" ? "" : ` of the part ${part}`;
  const address = addressFlag(
    name,
    ADDRESSES[part],
    `address of the webhooks${of}; none: this cluster has no webhook configurations${of}`,
  );
  return {
    ...address,
    parse: (text, before) => (text === "none" ? undefined : address.parse(text, before ?? { port: 0 })),
  };
}

/** Webhooks, and where a program serves them: `undefined` for nowhere. */
export type ServedWebhooks = (Webhooks | OwnWebhooks) & { readonly address: ListenAddress | undefined };

/** The values of {@link webhookFlags} beside the address. */
interface CertificateValues {
  readonly certDir: string;
  readonly webhookClientCa: string;
  readonly webhookClientName: readonly string[];
  readonly enableCertRotation: boolean;
  readonly enableRestartOnCertRefresh: boolean;
}

/** Serves webhooks on this replica, whether it leads or not: each kind with a server and a certificate of its own, as the manifests have them. */
export function serveWebhooks(
  replica: ControllerReplica,
  served: readonly ServedWebhooks[],
  values: CertificateValues,
): void {
  const present = served.filter(({ address }) => address !== undefined);
  if (present.length === 0) return;
  const metrics = webhookMetrics(replica.registry);
  const callers = callersOf(values);
  for (const webhooks of present) {
    // The names are Coil's where there is one kind.
    serveKind(replica, webhooks, { values, callers, metrics, suffix: present.length === 1 ? "" : `-${webhooks.part}` });
  }
}

/** Throws {@link ConfigError} for names without an authority, which would let everybody in. */
function callersOf({ webhookClientCa: caFile, webhookClientName: names }: CertificateValues): Callers | undefined {
  if (caFile !== "") return { caFile, names };
  if (names.length === 0) return undefined;
  throw new ConfigError("invalid-flags", [
    "--webhook-client-name: needs --webhook-client-ca, as nobody proves a name without it",
  ]);
}

interface Serving {
  readonly values: CertificateValues;
  readonly callers: Callers | undefined;
  readonly metrics: WebhookMetrics;
  /** The suffix that distinguishes the names of this kind's health, logs and controller. */
  readonly suffix: string;
}

function serveKind(
  replica: ControllerReplica,
  webhooks: ServedWebhooks,
  { values, callers, metrics, suffix }: Serving,
): void {
  const log = replica.log.child(`webhook${suffix}`);
  const part = replica.health.part(`webhook${suffix}`, { needed: "always" });
  const handlers = handlersOf(replica, webhooks);
  let server: WebhookServer | undefined;
  let waiting: KeyPair | undefined;
  let isStarting = values.enableCertRotation;
  const dirty = new Dirty(systemClock);
  const use = (pair: KeyPair): void => {
    if (server === undefined) waiting = pair;
    else server.use(pair);
    isStarting = false;
    dirty.mark("certificate");
  };
  replica.run(async (signal) => {
    await using listening = await WebhookServer.listen({
      ...(webhooks.address ?? { port: 0 }),
      certDir: values.certDir,
      isPairGiven: values.enableCertRotation,
      ...(callers === undefined ? {} : { callers }),
      handlers,
      onAnswer: metrics.answered,
      onCertificate: (event) => metrics.certificate(webhooks.part, event),
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
    const since = systemClock.monotonic();
    await repeat(check, {
      signal,
      everyMs: CHECK_MS,
      dirty,
      onFailure: (error) => {
        if (!isStarting || systemClock.monotonic() - since > FIRST_PAIR_MS) part.degraded(error);
      },
      retryAfterMs: () => UNTIL_READY_MS,
    });
  });
  if (values.enableCertRotation) {
    rotate(replica, rotationOf(webhooks.part), { use, renewed: metrics.renewed, values, suffix });
  }
}

function handlersOf(replica: ControllerReplica, webhooks: Webhooks | OwnWebhooks) {
  if ("handlers" in webhooks) return webhooks.handlers(replica);
  const { type, context } = webhooks;
  const rules = coilAdmissions.filter((one) => one.type === type);
  return admissionHandlers<AdmissionContext>(
    new Map(rules.map((one) => [webhookPathOf(one.type), one])),
    context(replica),
  );
}

function rotate(
  { api, log, watch, control, end }: ControllerReplica,
  names: ReturnType<typeof rotationOf>,
  to: {
    readonly use: (pair: KeyPair) => void;
    readonly renewed: () => void;
    readonly values: CertificateValues;
    readonly suffix: string;
  },
): void {
  const { suffix } = to;
  const rotation = new CertificateRotation({ api, log: log.child(`certificate${suffix}`), clock: systemClock }, names, {
    onPair: (pair, { refreshed }) => {
      to.use(pair);
      if (refreshed && to.values.enableRestartOnCertRefresh) end("the webhooks' certificate was renewed");
    },
    onRenewed: to.renewed,
  });
  const controller = control(`webhook-certificate${suffix}`, {
    reconcile: (_key, { signal }) => rotation.sync({ signal }),
  });
  const enqueue = (): void => controller.enqueue(ROTATE);
  const onAny = { onAdd: enqueue, onUpdate: enqueue, onDelete: enqueue };
  const follow = (
    type: ResourceType<KubeObject>,
    name: string,
    selection: { readonly namespace?: string } = {},
  ): void => {
    const fieldSelector = `metadata.name=${name}`;
    watch(type, { ...selection, fieldSelector, name: `${type.plural}${suffix}` }).addHandler(onAny);
  };
  const { secret, mutating, validating } = names;
  follow(resources.secrets, secret.name, { namespace: secret.namespace });
  follow(resources.mutatingWebhookConfigurations, mutating);
  follow(resources.validatingWebhookConfigurations, validating);
  controller.enqueue(ROTATE);
}
