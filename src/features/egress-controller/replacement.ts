import type { Draft, KubeObject } from "#kube/client";
import { isRecord } from "./applied.ts";

/** The fields of a Service that its server gives it once. */
const ALLOCATED = ["clusterIP", "clusterIPs", "ipFamilies"] as const;

/**
 * Pure: an object whose spec is the wanted one alone, for a server that refuses the apply: a field of somebody else can exclude one of ours, such as
 * the other side of a disruption budget, and an apply removes only what was applied. Addresses that the server gave, others' metadata, and the annotations of the
 * pod template (`kubectl rollout restart`) stay.
 */
export function replacementOf<T extends KubeObject>(wanted: Draft<T>, actual: T): Draft<T> {
  const { managedFields: _managers, ...metadata } = actual.metadata;
  const [spec, before] = [specOf(wanted), specOf(actual)];
  const kept = Object.fromEntries(ALLOCATED.filter((name) => name in before).map((name) => [name, before[name]]));
  const template = isRecord(spec["template"])
    ? { template: withAnnotations(spec["template"], before["template"]) }
    : {};
  return {
    ...wanted,
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, ...wanted.metadata.labels },
      ownerReferences: wanted.metadata.ownerReferences,
    },
    spec: { ...kept, ...spec, ...template },
  } as Draft<T>;
}

/** A pod template with the annotations of another one beneath its own. */
function withAnnotations(template: Readonly<Record<string, unknown>>, before: unknown): unknown {
  const metadata = recordOf(template["metadata"]);
  const old = recordOf(recordOf(recordOf(before)["metadata"])["annotations"]);
  return { ...template, metadata: { ...metadata, annotations: { ...old, ...recordOf(metadata["annotations"]) } } };
}

function specOf(object: object): Readonly<Record<string, unknown>> {
  return recordOf((object as { readonly spec?: unknown }).spec);
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}
