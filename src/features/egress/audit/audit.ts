import type { IpAddress } from "#base/ip";
import type { Pod } from "#kube/client";
import { clientEgress, clientService } from "../client/index.ts";
import { type AuditedEgresses, auditAnnotations, auditClients } from "./clients.ts";
import { auditObjects, type EgressObjects, keyOf } from "./egresses.ts";
import type { EgressFinding } from "./finding.ts";
import { type AuditedPod, auditedPod, matchPods } from "./pods.ts";
import { auditRouters } from "./routers.ts";
import type { EgressNode } from "./state.ts";

/** What is compared. */
export interface EgressAuditInput extends EgressObjects {
  readonly pods: readonly Pod[];
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
  const { pods: all, nodes, ...objects } = input;
  const pods = all.map(auditedPod);
  const port = nodes.find(({ clients }) => clients !== undefined)?.clients?.port;
  const egresses = knownEgresses(objects);
  const keys = new Set(objects.egresses.map(keyOf));
  const parts = nodes.map((node) => {
    const at = matchPods(node, pods);
    return {
      // Without the Services it is not known where tunnels lead.
      ofClients: objects.services === undefined ? NONE : auditClients(at, pods, egresses),
      ofRouters: auditRouters(at, { pods, all, nodes, hasEgress: (key) => keys.has(key) }),
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

function knownEgresses({ egresses, services }: EgressObjects): AuditedEgresses {
  const refKey = (ref: { readonly namespace: string; readonly name: string }): string => `${ref.namespace}/${ref.name}`;
  const byKey = new Map(egresses.map((one) => [keyOf(one), clientEgress(one)]));
  const known = new Map((services ?? []).map((one) => [keyOf(one), clientService(one)]));
  const ofAddress = new Map([...known].flatMap(([key, { addresses }]) => addresses.map((one) => [String(one), key])));
  return {
    source: { egress: (ref) => byKey.get(refKey(ref)), service: (ref) => known.get(refKey(ref)) },
    ofAddress: (address: IpAddress) => ofAddress.get(String(address)),
  };
}
