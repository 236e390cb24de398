/**
 * The admission plugin OwnerReferencesPermissionEnforcement of kube-apiserver, which OpenShift and hardened clusters have on: an owner reference that blocks its
 * owner's deletion may be written only by those who may set the owner's finalizers, and who changes references must be allowed to delete the object.
 *
 * Owns: the check. Does not know: rights, which it asks the API server about.
 */
import assert from "node:assert/strict";
import type { KubeClient } from "#kube/client";
import { type AdmissionPlugin, type AdmissionRequest, ApiError } from "#lab/api-server";

interface Reference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly blockOwnerDeletion?: boolean;
}

/** The resource of each kind, and true if it has a namespace. */
const OWNERS: Readonly<Record<string, readonly [resource: string, isNamespaced: boolean]>> = {
  AddressPool: ["addresspools", false],
  Egress: ["egresses", true],
};

/** The plugin; `admin` is asked for at the first reference, when the server runs. */
export function ownerReferencesPermission(admin: () => KubeClient): AdmissionPlugin {
  return {
    name: "OwnerReferencesPermissionEnforcement",
    admit: async (request) => {
      const [before, after] = [referencesOf(request.old), referencesOf(request.object)];
      if (request.object === undefined || JSON.stringify(before) === JSON.stringify(after)) return undefined;
      const { group, resource, namespace, name } = request;
      if (
        request.operation !== "CREATE" &&
        !(await isAllowed(admin(), request, { verb: "delete", group, resource, namespace, name }))
      )
        throw new ApiError("Forbidden", `cannot set an ownerRef on a resource you can't delete: ${resource} ${name}`);
      for (const { apiVersion, kind, name: owner, uid, blockOwnerDeletion } of after) {
        if (blockOwnerDeletion !== true || before.some((one) => one.uid === uid && one.blockOwnerDeletion === true))
          continue;
        const [plural, isNamespaced] = OWNERS[kind] ?? assert.fail(`the owner is of kind ${kind}`);
        const at = { group: apiVersion.split("/")[0] ?? "", resource: plural, subresource: "finalizers", name: owner };
        if (await isAllowed(admin(), request, { ...at, verb: "update", namespace: isNamespaced ? namespace : "" }))
          continue;
        throw new ApiError(
          "Forbidden",
          `cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: ${plural} ${owner}`,
        );
      }
      return undefined;
    },
  };
}

function referencesOf(object: AdmissionRequest["object"]): readonly Reference[] {
  return (object?.metadata.ownerReferences ?? []) as readonly Reference[];
}

async function isAllowed(admin: KubeClient, { user }: AdmissionRequest, resourceAttributes: object): Promise<boolean> {
  const answer = await admin.request({
    method: "POST",
    path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    body: {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      spec: { user: user.name, groups: user.groups, resourceAttributes },
    },
  });
  return (answer as { readonly status: { readonly allowed: boolean } }).status.allowed;
}
