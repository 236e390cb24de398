import type { ClusterRoleBinding, Deployment, EndpointSlice, Service } from "#kube/client";
import { type Egress, ROUTER_ACCOUNT } from "#kube/coil";
import { clientEgress, clientService } from "../client/index.ts";
import { type EgressFinding, listed } from "./finding.ts";

/** The objects of Egresses; those that these credentials may not list are absent. */
export interface EgressObjects {
  readonly egresses: readonly Egress[];
  /** With the labels of an Egress's objects. */
  readonly services: readonly Service[] | undefined;
  /** With the labels of an Egress's objects. */
  readonly deployments: readonly Deployment[] | undefined;
  /** The EndpointSlices of the namespaces with an Egress. */
  readonly slices: readonly EndpointSlice[] | undefined;
  /** Those of the routers' account. */
  readonly bindings: readonly ClusterRoleBinding[] | undefined;
}

const SERVICE_NAME_LABEL = "kubernetes.io/service-name";

type Named = { readonly metadata: { readonly namespace?: string; readonly name: string } };
/** `namespace/name`. */
export const keyOf = ({ metadata: { namespace = "", name } }: Named): string => `${namespace}/${name}`;

/** Pure: Egresses compared with the objects that `coil-egress-controller` makes for them. `port`: UDP port of the tunnels, if known. */
export function auditObjects(objects: EgressObjects, port: number | undefined): EgressFinding[] {
  const living = objects.egresses.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  return [
    ...living.flatMap((egress) => [
      ...ofDestinations(egress),
      ...ofService(egress, objects, port),
      ...ofEndpoints(egress, objects),
      ...ofDeployment(egress, objects),
    ]),
    ...leftovers(objects),
    ...ofBindings(objects),
  ];
}

const say = (kind: EgressFinding["kind"], text: string): EgressFinding => ({ kind, node: undefined, text });

function ofDestinations(egress: Egress): EgressFinding[] {
  const { destinations, wrong } = clientEgress(egress);
  if (destinations.length + wrong.length === 0)
    return [say("egress-destination", `Egress ${keyOf(egress)} has no destinations: it leads nothing anywhere`)];
  if (wrong.length === 0) return [];
  const texts = wrong.map(({ field, text }) => `${field} ${JSON.stringify(text)}`);
  return [say("egress-destination", `Egress ${keyOf(egress)} has destinations that are no CIDRs: ${listed(texts)}`)];
}

function ofService(egress: Egress, { services }: EgressObjects, port: number | undefined): EgressFinding[] {
  if (services === undefined) return [];
  const key = keyOf(egress);
  const service = services.find((one) => keyOf(one) === key);
  if (service === undefined)
    return [
      say(
        "egress-service",
        `Egress ${key} has no Service with the labels of an Egress: see the log of coil-egress-controller`,
      ),
    ];
  const faults = [
    ...(clientService(service).addresses.length === 0 ? ["has no ClusterIP"] : []),
    ...(hasPort(service, port) ? [] : [`has no UDP port ${port ?? ""}`.trimEnd()]),
  ];
  return faults.map((fault) => say("egress-service", `the Service of Egress ${key} ${fault}`));
}

function hasPort({ spec }: Service, port: number | undefined): boolean {
  return (spec?.ports ?? []).some((one) => one.protocol === "UDP" && (port === undefined || one.port === port));
}

function ofEndpoints(egress: Egress, { services, slices }: EgressObjects): EgressFinding[] {
  const key = keyOf(egress);
  if (slices === undefined || services?.some((one) => keyOf(one) === key) !== true) return [];
  const { namespace = "", name } = egress.metadata;
  const ready = slices
    .filter(({ metadata }) => metadata.namespace === namespace && metadata.labels?.[SERVICE_NAME_LABEL] === name)
    .flatMap(({ endpoints }) => endpoints ?? [])
    .filter(({ conditions }) => conditions?.ready !== false);
  return ready.length > 0
    ? []
    : [
        say(
          "egress-endpoints",
          `the Service of Egress ${key} has no ready endpoint: packets of its clients go nowhere`,
        ),
      ];
}

function ofDeployment(egress: Egress, { deployments }: EgressObjects): EgressFinding[] {
  if (deployments === undefined) return [];
  const key = keyOf(egress);
  const deployment = deployments.find((one) => keyOf(one) === key);
  if (deployment === undefined)
    return [
      say(
        "egress-deployment",
        `Egress ${key} has no Deployment with the labels of an Egress: see the log of coil-egress-controller`,
      ),
    ];
  const wanted = egress.spec?.replicas ?? 1;
  const given = deployment.spec?.replicas ?? 1;
  const available = deployment.status?.availableReplicas ?? 0;
  const told = egress.status?.replicas ?? 0;
  const faults = [
    ...(given === wanted ? [] : [`its Deployment has replicas: ${given}, and not ${wanted}`]),
    ...(available >= given ? [] : [`${available} of ${given} routers are available`]),
    ...(told === available
      ? []
      : [`its status tells ${told} routers, and its Deployment has ${available} that are available`]),
  ];
  return faults.map((fault) => say("egress-replicas", `Egress ${key}: ${fault}`));
}

/** The garbage collector deletes what an Egress owned, within seconds. */
function leftovers({ egresses, services, deployments }: EgressObjects): EgressFinding[] {
  const known = new Set(egresses.map(keyOf));
  const of = (kind: string, objects: readonly (Named & { readonly metadata: { deletionTimestamp?: unknown } })[]) =>
    objects
      .filter((one) => !known.has(keyOf(one)) && one.metadata.deletionTimestamp === undefined)
      .map((one) => say("egress-leftover", `${kind} ${keyOf(one)} has the labels of an Egress that does not exist`));
  return [...of("Service", services ?? []), ...of("Deployment", deployments ?? [])];
}

function ofBindings({ egresses, bindings }: EgressObjects): EgressFinding[] {
  if (bindings === undefined) return [];
  const wanted = new Set(egresses.map(({ metadata }) => subjectText({ namespace: metadata.namespace ?? "" })));
  const binding = `ClusterRoleBinding ${ROUTER_ACCOUNT}`;
  if (!bindings.some(({ metadata }) => metadata.name === ROUTER_ACCOUNT)) {
    return wanted.size === 0
      ? []
      : [say("egress-subjects", `there is no ${binding}: routers may not read pods; apply the manifests`)];
  }
  return bindings.flatMap(({ metadata, subjects = [] }) => {
    const found = new Set(subjects.map(subjectText));
    const [missing, surplus] = [
      [...wanted].filter((one) => !found.has(one)),
      [...found].filter((one) => !wanted.has(one)),
    ];
    const name = `ClusterRoleBinding ${metadata.name}`;
    return [
      ...(missing.length === 0 ? [] : [say("egress-subjects", `${name} lacks the subject ${listed(missing)}`)]),
      ...(surplus.length === 0
        ? []
        : [say("egress-subjects", `${name} has the subject ${listed(surplus)}, but there is no Egress for it`)]),
    ];
  });
}

function subjectText({
  kind = "ServiceAccount",
  name = ROUTER_ACCOUNT,
  namespace = "",
}: {
  readonly kind?: string;
  readonly name?: string;
  readonly namespace?: string;
}): string {
  return `${kind} ${namespace}/${name}`;
}
