import type { IpAddress } from "#base/ip";
import type { Namespace, Pod } from "#kube/client";
import { accessNamespace, egressAccess, usesFrom } from "../access/index.ts";
import { clientEgress, clientService } from "../client/index.ts";
import { type AuditedEgresses, auditAnnotations, auditClients } from "./clients.ts";
import { auditObjects, type EgressObjects, keyOf } from "./egresses.ts";
import type { EgressFinding } from "./finding.ts";
import { type AuditedPod, auditedPod, matchPods } from "./pods.ts";
import { auditRouters } from "./routers.ts";
import type { EgressNode } from "./state.ts";

/** The input of the comparison. */
export interface EgressAuditInput extends EgressObjects {
  readonly pods: readonly Pod[];
  /** Absent: they are not known, and neither is who may use an Egress. */
  readonly namespaces: readonly Namespace[] | undefined;
  /** The nodes whose `coild` was asked; of others only the API's objects are compared. */
  readonly nodes: readonly EgressNode[];
}

/** The numbers of objects that were compared, and of those that are on nodes that were not asked. */
export interface EgressCoverage {
  readonly egresses: number;
  readonly clients: number;
  readonly routers: number;
  readonly clientsElsewhere: number;
  readonly routersElsewhere: number;
}

/** The result of {@link auditEgress}. */
export interface EgressAudit {
  readonly findings: readonly EgressFinding[];
  readonly checked: EgressCoverage;
}

/**
 * Finds every difference between Egresses and their objects, the annotations of pods, and what namespaces of clients and routers have. An operation in progress
 * can appear as a difference. Pure.
 */
export function auditEgress(input: EgressAuditInput): EgressAudit {
  const { pods: all, nodes, namespaces, ...objects } = input;
  const usesOf = usesOfPods(objects.egresses, namespaces);
  const pods = all.map((pod) => auditedPod(pod, usesOf));
  const port = nodes.find(({ clients }) => clients !== undefined)?.clients?.port;
  const egresses = knownEgresses(objects, usesOf);
  const keys = new Set(objects.egresses.map(keyOf));
  const parts = nodes.map((node) => {
    const at = matchPods(node, pods);
    return {
      // Without the Services it is not known where tunnels lead.
      ofClients: objects.services === undefined ? NONE : auditClients(at, pods, egresses),
      ofRouters: auditRouters(at, { pods, nodes, hasEgress: (key) => keys.has(key) }),
    };
  });
  const clients = parts.reduce((sum, { ofClients }) => sum + ofClients.clients, 0);
  const routers = parts.reduce((sum, { ofRouters }) => sum + ofRouters.routers, 0);
  const isClient = ({ isClient: is, hasNetwork, routerOf }: AuditedPod): boolean =>
    is && hasNetwork && routerOf === undefined;
  const isRouter = ({ routerOf, hasNetwork }: AuditedPod): boolean => routerOf !== undefined && hasNetwork;
  return {
    findings: [
      ...auditObjects(objects, port),
      ...auditAnnotations(pods, egresses),
      ...parts.flatMap(({ ofClients, ofRouters }) => [...ofClients.findings, ...ofRouters.findings]),
    ],
    checked: {
      egresses: objects.egresses.length,
      clients,
      routers,
      clientsElsewhere: pods.filter(isClient).length - clients,
      routersElsewhere: pods.filter(isRouter).length - routers,
    },
  };
}

const NONE = { findings: [], clients: 0 } as const;

/** Without the Namespaces every pod may use what it names, and nothing selects pods of other namespaces. */
function usesOfPods(egresses: EgressObjects["egresses"], namespaces: readonly Namespace[] | undefined) {
  const views = new Map(namespaces?.map((one) => [one.metadata.name, accessNamespace(one)]));
  const accesses = egresses.map((one) => {
    const { allowed, ...access } = egressAccess(one);
    return namespaces === undefined || allowed === undefined ? access : { ...access, allowed };
  });
  return usesFrom(accesses, (name) => views.get(name));
}

function knownEgresses(
  { egresses, services }: EgressObjects,
  usesOf: AuditedEgresses["source"]["usesOf"],
): AuditedEgresses {
  const refKey = (ref: { readonly namespace: string; readonly name: string }): string => `${ref.namespace}/${ref.name}`;
  const byKey = new Map(egresses.map((one) => [keyOf(one), clientEgress(one)]));
  const known = new Map((services ?? []).map((one) => [keyOf(one), clientService(one)]));
  const ofAddress = new Map([...known].flatMap(([key, { addresses }]) => addresses.map((one) => [String(one), key])));
  return {
    source: { egress: (ref) => byKey.get(refKey(ref)), service: (ref) => known.get(refKey(ref)), usesOf },
    ofAddress: (address: IpAddress) => ofAddress.get(String(address)),
  };
}
