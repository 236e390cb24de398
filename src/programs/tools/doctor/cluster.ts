import type { Clock } from "#base/clock";
import { readFact } from "#base/diagnosis";
import { sourceRangeFaults } from "#features/service-proxy";
import {
  type ClusterFacts,
  type FaultCheck,
  type Instance,
  judgeSuiteCluster,
  neededRights,
  nodeAddresses,
  readyEndpoints,
  type WebhookFacts,
} from "#features/suite-report";
import { findObject, type KubeClient, objectKey, resources, type Secret } from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import { nicCrds } from "#kube/nic";
import { collect, listOptional, listPods, REQUEST_MS, readPolicies, requireServer } from "../../shared/suite/index.ts";
import { WEBHOOK_NAMES } from "../../shared/webhooks/index.ts";
import { refusedClients } from "./refused-clients.ts";

/** A configuration of either kind, as far as it is read. */
interface Configuration {
  readonly metadata: { readonly name: string };
  readonly webhooks?: readonly {
    readonly name: string;
    readonly clientConfig: {
      readonly caBundle?: string | undefined;
      readonly service?: { readonly namespace: string; readonly name: string } | undefined;
    };
  }[];
}

/** Looks at a cluster. Rejects with `KubeError` if the API server does not answer at all, and with the signal's reason. */
export async function clusterChecks(
  api: KubeClient,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<readonly FaultCheck[]> {
  await requireServer(api, { signal });
  const at = { signal, timeoutMs: REQUEST_MS };
  const [instances, nodes, crds, webhooks, pools, blocks, requests, egresses, routers, leases] = await Promise.all([
    readFact(() => listPods(api, { signal })),
    readFact(() => collect(api, resources.nodes, at, (node) => [nodeAddresses(node)])),
    readFact(async () => (await api.listAll(resources.customResourceDefinitions, at)).items),
    readFact(() => readWebhooks(api, signal)),
    listOptional(api, coilResources.addressPools, { signal }),
    listOptional(api, coilResources.addressBlocks, { signal, metadataOnly: true }),
    listOptional(api, coilResources.blockRequests, { signal }),
    listOptional(api, coilResources.egresses, { signal }),
    listOptional(api, resources.deployments, {
      signal,
      labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress",
    }),
    readFact(async () => (await api.listAll(resources.leases, { ...at, namespace: "kube-system" })).items),
  ]);
  const lackedRights = await readFact(() => reviewRights(api, "value" in instances ? instances.value : [], signal));
  const sourceRanges = await readFact(() =>
    collect(api, resources.services, at, (service) =>
      sourceRangeFaults(service).map((fault) => ({ ...fault, service: objectKey(service) })),
    ),
  );
  const policies = await readFact(() => readPolicies(api, { signal }));
  const refused = await readFact(() => refusedClients(api, "value" in egresses ? (egresses.value ?? []) : [], at));
  const facts: ClusterFacts = {
    now: clock.now(),
    ...{ instances, nodes, crds, webhooks, pools, blocks, requests, egresses, routers, leases, lackedRights },
    ...{ refusedClients: refused, sourceRanges, policies },
  };
  return judgeSuiteCluster(facts, [...coilCrds, ...nicCrds]);
}

async function readWebhooks(api: KubeClient, signal: AbortSignal): Promise<readonly WebhookFacts[]> {
  const found = await Promise.all(
    WEBHOOK_NAMES.flatMap(({ mutating, validating, secret }) =>
      [
        findObject<Configuration & { readonly metadata: never }>(
          api,
          resources.mutatingWebhookConfigurations as never,
          { name: mutating },
          { signal },
        ),
        findObject<Configuration & { readonly metadata: never }>(
          api,
          resources.validatingWebhookConfigurations as never,
          { name: validating },
          { signal },
        ),
      ].map(async (one) => ({ configuration: (await one) as Configuration | undefined, secret })),
    ),
  );
  return Promise.all(
    found.flatMap(({ configuration, secret }) =>
      (configuration?.webhooks ?? []).flatMap(({ name, clientConfig: { caBundle = "", service } }) =>
        service === undefined
          ? []
          : [
              (async (): Promise<WebhookFacts> => ({
                configuration: configuration?.metadata.name ?? "",
                webhook: name,
                caBundle,
                service: `${service.namespace}/${service.name}`,
                endpoints: await readFact(async () => {
                  const labelSelector = `kubernetes.io/service-name=${service.name}`;
                  const { namespace } = service;
                  return readyEndpoints(
                    (await api.listAll(resources.endpointSlices, { signal, namespace, labelSelector })).items,
                  );
                }),
                secret: await readFact<Secret | undefined>(() =>
                  findObject(api, resources.secrets, secret, { signal }),
                ),
              }))(),
            ],
      ),
    ),
  );
}

/** Asks the API server for the rights of the accounts of programs; a review is stored nowhere. */
async function reviewRights(api: KubeClient, instances: readonly Instance[], signal: AbortSignal) {
  const accounts = new Map(
    instances.flatMap((one) =>
      one.pod === undefined ? [] : [[`${one.program} ${one.pod.namespace}/${one.pod.account}`, one] as const],
    ),
  );
  const wanted = [...accounts.values()].flatMap((instance) =>
    neededRights(instance).map((right) => ({
      program: instance.program,
      namespace: instance.pod?.namespace ?? "",
      name: instance.pod?.account ?? "",
      right,
    })),
  );
  const reviewed = await Promise.all(
    wanted.map(async ({ program, namespace, name, right }) => {
      const { group, verb, namespace: within, name: object } = right;
      const [resource, subresource] = right.resource.split("/");
      const spec = {
        user: `system:serviceaccount:${namespace}:${name}`,
        groups: ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"],
        resourceAttributes: { group, resource, subresource, verb, namespace: within, name: object },
      };
      const path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
      const body = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec };
      const answer = await api.request({ method: "POST", path, body }, { signal, timeoutMs: REQUEST_MS });
      const { status } = answer as { readonly status?: { readonly allowed?: boolean } };
      return { program, account: `${namespace}/${name}`, right, isAllowed: status?.allowed === true };
    }),
  );
  return reviewed.filter(({ isAllowed }) => !isAllowed);
}
