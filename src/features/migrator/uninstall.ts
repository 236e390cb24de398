import type { AbortOptions } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { findObject, type KubeObject, type ResourceType, resources } from "#kube/client";
import { describe, persist, remove, type StepDeps } from "./settle.ts";

const SYSTEM = "kube-system";
/** The time that the deletion of one object may take, in milliseconds. */
const LIMIT_MS = 100_000;

/** An object of Coil v1. */
interface V1Object {
  readonly type: ResourceType<KubeObject>;
  readonly ref: { readonly name: string; readonly namespace?: string };
}

function object<T extends KubeObject>(type: ResourceType<T>, name: string, namespace?: string): V1Object {
  return { type: type as ResourceType<KubeObject>, ref: namespace === undefined ? { name } : { name, namespace } };
}

const CONFIG = object(resources.configMaps, "coil-config", SYSTEM);
const ACCOUNT = object(resources.serviceAccounts, "coil-controller", SYSTEM);
/** Objects whose name both versions use: the settings, and the account of the program that v2 had for both controllers before 2.9. */
const OF_BOTH: readonly V1Object[] = [CONFIG, ACCOUNT];
/** The objects whose existence shows that v2 is installed. */
const V2 = object(resources.daemonSets, "coild", SYSTEM);

/** The objects of v1's installation, in the order of their removal: programs first, then their rights. */
export const V1_OBJECTS: readonly V1Object[] = [
  object(resources.daemonSets, "coil-node", SYSTEM),
  object(resources.deployments, "coil-controllers", SYSTEM),
  CONFIG,
  object(resources.clusterRoleBindings, "coil-node"),
  object(resources.clusterRoleBindings, "coil-controllers"),
  object(resources.clusterRoles, "coil-node"),
  object(resources.clusterRoles, "coil-controllers"),
  object(resources.serviceAccounts, "coil-node", SYSTEM),
  ACCOUNT,
];

/** The result of {@link uninstall}: how many objects were deleted, and a line for each object that could not be deleted. */
export interface Uninstalled {
  readonly deleted: number;
  readonly failures: readonly string[];
}

/**
 * Deletes v1's objects and everything that they own, and waits for each object. If v2 is installed, objects whose names v2 also uses are
 * kept. If one object cannot be deleted, the other objects are deleted all the same.
 */
export async function uninstall(
  deps: StepDeps & { readonly log: Logger },
  options: AbortOptions,
): Promise<Uninstalled> {
  const { api, log } = deps;
  const failures: string[] = [];
  let deleted = 0;
  const limits = { ...options, limitMs: LIMIT_MS };
  const v2 = await persist(deps, () => findObject(api, V2.type, V2.ref, options), limits);
  for (const one of V1_OBJECTS) {
    if (OF_BOTH.includes(one) && v2 !== undefined) {
      log.info("an object is kept: v2 is installed, and the object can belong to v2", {
        object: describe(one.type, one.ref),
      });
      continue;
    }
    try {
      if (!(await remove(deps, one.type, one.ref, { ...limits, propagationPolicy: "Foreground" }))) continue;
      deleted += 1;
      log.info("deleted", { object: describe(one.type, one.ref) });
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      failures.push(`cannot delete ${describe(one.type, one.ref)}: ${describeError(error)}`);
    }
  }
  return { deleted, failures };
}
