import { type KubeObject, type ResourceType, resourceName } from "#kube/client";
import type { SchemaNode, SchemaRule } from "./schema.ts";

/** A column of `kubectl get`. */
export interface PrinterColumn {
  readonly name: string;
  readonly type: "string" | "integer" | "date";
  readonly jsonPath: string;
}

/** A CustomResourceDefinition of ours: the object that is sent to an API server and written to `deploy/crds`. */
export interface CrdManifest {
  readonly apiVersion: "apiextensions.k8s.io/v1";
  readonly kind: "CustomResourceDefinition";
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly group: string;
    readonly names: {
      readonly kind: string;
      readonly listKind: string;
      readonly plural: string;
      readonly singular: string;
    };
    readonly scope: "Cluster" | "Namespaced";
    readonly versions: readonly {
      readonly name: string;
      readonly served: true;
      readonly storage: true;
      readonly additionalPrinterColumns?: readonly PrinterColumn[];
      readonly schema: { readonly openAPIV3Schema: SchemaNode };
      readonly subresources?: {
        readonly status?: Record<string, never>;
        readonly scale?: {
          readonly specReplicasPath: string;
          readonly statusReplicasPath: string;
          readonly labelSelectorPath: string;
        };
      };
    }[];
  };
}

/** The properties that distinguish a CRD. */
export interface CrdInit {
  readonly type: ResourceType<KubeObject>;
  readonly description: string;
  readonly properties: Readonly<Record<string, SchemaNode>>;
  readonly required: readonly string[];
  /** The schema of the whole object. */
  readonly rules?: readonly SchemaRule[] | undefined;
  readonly columns?: readonly PrinterColumn[];
  readonly subresources?: CrdManifest["spec"]["versions"][number]["subresources"];
}

/** Fields that every object has; controller-gen writes the same descriptions. */
const OBJECT_FIELDS: Readonly<Record<string, SchemaNode>> = {
  apiVersion: { type: "string", description: "The version of this representation of the object." },
  kind: { type: "string", description: "The REST resource that this object represents." },
  metadata: { type: "object" },
};

/** The CRD of a kind with one version. */
export function crd(init: CrdInit): CrdManifest {
  const { group, version, kind, plural, namespaced } = init.type;
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: resourceName(init.type) },
    spec: {
      group,
      names: { kind, listKind: `${kind}List`, plural, singular: kind.toLowerCase() },
      scope: namespaced ? "Namespaced" : "Cluster",
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          ...(init.columns === undefined ? {} : { additionalPrinterColumns: init.columns }),
          schema: {
            openAPIV3Schema: {
              type: "object",
              description: init.description,
              ...(init.required.length === 0 ? {} : { required: init.required }),
              properties: { ...OBJECT_FIELDS, ...init.properties },
              ...(init.rules === undefined ? {} : { "x-kubernetes-validations": init.rules }),
            },
          },
          ...(init.subresources === undefined ? {} : { subresources: init.subresources }),
        },
      ],
    },
  };
}

/** A column with the value of a label; dots within a key are escaped in JSONPath. */
export function labelColumn(name: string, label: string): PrinterColumn {
  return { name, type: "string", jsonPath: `.metadata.labels['${label.replaceAll(".", "\\.")}']` };
}
