import { stringify } from "yaml";
import { apiVersionOf, type Draft, type KubeObject, type ResourceType } from "#kube/client";
import { coilResources } from "#kube/coil";
import type { V2Plan } from "./plan.ts";

/** The objects of a plan as YAML documents for `kubectl apply`, pools first. The same plan gives the same text. */
export function manifestsOf(plan: Pick<V2Plan, "pools" | "blocks">): string {
  const { addressPools, addressBlocks } = coilResources;
  return [
    ...plan.pools.map((pool) => documentOf(addressPools, pool)),
    ...plan.blocks.map((block) => documentOf(addressBlocks, block)),
  ].join("");
}

function documentOf<T extends KubeObject>(type: ResourceType<T>, draft: Draft<T>): string {
  const object = { apiVersion: apiVersionOf(type), kind: type.kind, ...draft };
  return `---\n${stringify(object, { lineWidth: 0, aliasDuplicateObjects: false })}`;
}
