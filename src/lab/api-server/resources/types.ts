import type { Rules } from "../cel/index.ts";
import type { Cause } from "../errors.ts";
import type { Json, JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { Schema } from "../schema/index.ts";

/** A column of a Table (meta/v1 TableColumnDefinition) and how to fill it. */
export interface Column {
  readonly name: string;
  readonly type: "string" | "integer" | "number" | "boolean" | "date";
  readonly format?: string;
  readonly description?: string;
  /** 0 is always shown; more only with `-o wide`. */
  readonly priority?: number;
  /** `nowMs` is for ages. */
  readonly cell: (object: KubeObject, nowMs: number) => Json;
}

/** Paths of the scale subresource, as lists of keys. */
export interface ScalePaths {
  readonly specReplicas: readonly string[];
  readonly statusReplicas: readonly string[];
  /** The path of the selector: a text, a LabelSelector or a map of labels. */
  readonly selector?: readonly string[] | undefined;
}

/** The behaviour of a kind that differs from the common behaviour. All functions change the object in place. */
export interface Strategy {
  /** Values for absent members; called on every write. */
  readonly defaults?: (object: KubeObject) => void;
  /** Called only on create, after defaults: sets fields that clients may not choose. */
  readonly prepareCreate?: (object: KubeObject) => void;
  /** Completes a new object by the changes that webhooks have made; returns the same object without such changes. */
  readonly admitted?: (object: KubeObject) => KubeObject;
  /** Called only on update: restores fields that clients may not change. */
  readonly prepareUpdate?: (object: KubeObject, old: KubeObject) => void;
  /** Faults beyond the schema's. `old` on update. */
  readonly validate?: (object: KubeObject, old: KubeObject | undefined) => Cause[];
  /** Seconds between a delete and the end; undefined: at once. */
  readonly graceSeconds?: (object: KubeObject, wanted: number | undefined) => number | undefined;
}

/** One served resource in one version. */
export interface ResourceDef {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly listKind: string;
  readonly plural: string;
  readonly singular: string;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly namespaced: boolean;
  /** Names the collection in the store: all versions of a resource have the same collection. */
  readonly storage: string;
  /** The definition's name in OpenAPI. */
  readonly definition: string;
  readonly schema: Schema;
  /** The checks of `x-kubernetes-validations` of a custom resource. */
  readonly rules?: Rules | undefined;
  readonly verbs: readonly string[];
  readonly hasStatus: boolean;
  /** True if `metadata.generation` counts changes of the wanted state. */
  readonly generation: boolean;
  readonly scale?: ScalePaths | undefined;
  readonly columns: readonly Column[];
  readonly selectableFields: ReadonlySet<string>;
  readonly strategy: Strategy;
  /** Custom resources refuse strategic merge patches and keep nulls that their schema allows. */
  readonly custom: boolean;
  /** Converts a stored object to this version, and back. Undefined: only apiVersion differs. */
  readonly fromStorage?: ((object: KubeObject) => KubeObject) | undefined;
  readonly toStorage?: ((object: KubeObject) => KubeObject) | undefined;
  /** The version that is stored, in `apiVersion`'s form. */
  readonly storageApiVersion: string;
  readonly deprecationWarning?: string | undefined;
}

/** The verbs of an ordinary resource, as discovery lists them. */
export const ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"] as const;

export type { JsonObject, KubeObject };
