import { isEqual } from "#base/collections";
import type { Cidr } from "#base/ip";
import { type JsonPatchOperation, type KubeObject, type ResourceType, resourceName } from "#kube/client";
import type { SchemaNode } from "#kube/crd";
import { type FieldFault, invalid, required } from "#kube/crd";
import { coilCrds } from "./crds.ts";
import { egressDefaults, poolDefaults } from "./defaults.ts";
import type { AddressedEgress } from "./egress-addresses.ts";
import { validateEgress } from "./egress-validation.ts";
import { type PoolInput, validatePoolCreate, validatePoolUpdate } from "./pool-validation.ts";
import { checkStructure, type StructureFaults } from "./structure.ts";
import { type AddressPool, coilResources, type Egress } from "./types.ts";

/** An object of a request or a file: nothing about it is known. */
type UncheckedObject = Readonly<Record<string, unknown>>;

/** The data about the cluster that the rules of an object need. If a field is absent, its rules are not checked. */
export interface AdmissionContext {
  /** The pools of the cluster; the checked object may be among them. */
  readonly pools?: Iterable<PoolInput>;
  /** The Egresses of the cluster; the checked object may be among them. */
  readonly egresses?: Iterable<AddressedEgress>;
  /** The ranges that Egresses may have addresses of. */
  readonly addressRanges?: readonly Cidr[];
  /** True if the cluster's pods have both families. */
  readonly dualStack?: boolean;
}

/** The verdict on a write: `faults` refuse it, `warnings` do not. */
interface AdmissionVerdict {
  readonly faults: readonly FieldFault[];
  readonly warnings: readonly string[];
}

/**
 * The rules of one kind. The webhooks, the offline check and, as far as CEL can express them, the CRD share these rules. The functions are
 * pure and take any object.
 */
export interface CoilAdmission {
  readonly type: ResourceType<KubeObject>;
  /**
   * The operations with which the defaulting webhook adds fields on create; `undefined` if the kind has no webhooks
   * (docs/spec/pod-network.md#2.6).
   */
  readonly defaults?: (object: UncheckedObject) => readonly JsonPatchOperation[];
  /** Checks a new object, or with `old` a change of it. A change that does not change the wanted state always passes. */
  readonly check: (
    object: UncheckedObject,
    old: UncheckedObject | undefined,
    context: AdmissionContext,
  ) => AdmissionVerdict;
  /** Only the faults of an object's structure, which {@link check} reports too, and the members that the schema does not know. */
  readonly structure: (object: UncheckedObject) => StructureFaults;
  /** Returns true if a change does not change the wanted state, so that {@link check} passes it without a context. */
  readonly isUnchanged: (object: UncheckedObject, old: UncheckedObject) => boolean;
}

interface Rules<T> {
  readonly defaults?: (object: T) => readonly JsonPatchOperation[];
  readonly create: (object: T, context: AdmissionContext) => AdmissionVerdict;
  /** Default: the check of a new object. */
  readonly update?: (before: T, after: T, context: AdmissionContext) => AdmissionVerdict;
}

const NONE: AdmissionVerdict = { faults: [], warnings: [] };

/** Every kind of Coil. A kind with `defaults` has webhooks. */
export const coilAdmissions: readonly CoilAdmission[] = [
  admissionOf<AddressPool>(coilResources.addressPools, {
    defaults: poolDefaults,
    create: (pool, { pools }) => faulty(validatePoolCreate(pool, othersOf(pools))),
    update: (before, after, { pools }) => faulty(validatePoolUpdate(before, after, othersOf(pools))),
  }),
  admissionOf(coilResources.addressBlocks, { create: () => NONE }),
  admissionOf(coilResources.blockRequests, { create: () => NONE }),
  admissionOf<Egress>(coilResources.egresses, {
    defaults: egressDefaults,
    create: (egress, context) => checkEgress(egress, undefined, context),
    update: (before, after, context) => checkEgress(after, before, context),
  }),
];

function checkEgress(egress: Egress, old: Egress | undefined, context: AdmissionContext): AdmissionVerdict {
  const { metadata, spec } = egress;
  if (spec === undefined) return faulty([required("spec", "the egress's destinations")]);
  return validateEgress({ metadata, spec }, context, old);
}

/** Returns the admission rules of a kind, or `undefined` if Coil does not define the kind. */
export function coilAdmission(kind: string): CoilAdmission | undefined {
  return coilAdmissions.find(({ type }) => type.kind === kind);
}

/** The last part of the paths of a kind's webhooks, as controller-runtime makes it: `coil-cybozu-com-v2-addresspool`. */
export function webhookPathOf({ group, version, kind }: ResourceType<KubeObject>): string {
  return `${group.replaceAll(".", "-")}-${version}-${kind.toLowerCase()}`;
}

function othersOf(pools: Iterable<PoolInput> | undefined): { readonly others?: Iterable<PoolInput> } {
  return pools === undefined ? {} : { others: pools };
}

function faulty(faults: readonly FieldFault[]): AdmissionVerdict {
  return { faults, warnings: [] };
}

function admissionOf<T extends KubeObject>(type: ResourceType<T>, rules: Rules<T>): CoilAdmission {
  const schema = schemaOf(type);
  const isUnchanged = (object: UncheckedObject, old: UncheckedObject): boolean => isEqual(wishOf(object), wishOf(old));
  /** The rules read only the members whose shape was checked, so the object can be treated as having that type. */
  const typed = (object: UncheckedObject): T => object as unknown as T;
  return {
    type,
    ...(rules.defaults === undefined
      ? {}
      : {
          defaults: (object) => (shapeFaults(schema, object).length > 0 ? [] : (rules.defaults?.(typed(object)) ?? [])),
        }),
    isUnchanged,
    structure: (object) => checkStructure(schema, object, ""),
    check: (object, old, context) => {
      if (old !== undefined && isUnchanged(object, old)) return NONE;
      const { shape, values, sizes } = checkStructure(schema, object, "");
      const faults = [...metadataFaults(object), ...shape];
      if (faults.length > 0) return faulty(faults);
      const sound = old !== undefined && shapeFaults(schema, old).length === 0;
      const before = sound ? checkStructure(schema, old, "") : undefined;
      // The caller may be anybody, and what an API server has stored fits.
      const news = newFaults(sizes, before?.sizes ?? []);
      if (news.length > 0) return faulty(news);
      const verdict =
        sound && rules.update !== undefined
          ? rules.update(typed(old), typed(object), context)
          : rules.create(typed(object), context);
      // Unchanged fields are judged by the rules, not here, because a stored object may be older than a rule.
      const further = newFaults(values, before?.values ?? []);
      return { faults: [...verdict.faults, ...newFaults(further, verdict.faults)], warnings: verdict.warnings };
    },
  };
}

/** The faults of fields for which, and for parts of which, no fault is known yet. */
function newFaults(faults: readonly FieldFault[], known: readonly FieldFault[]): FieldFault[] {
  return faults.filter(({ field }) => !known.some((other) => other.field === field));
}

function shapeFaults(schema: SchemaNode, object: UncheckedObject): readonly FieldFault[] {
  return [...metadataFaults(object), ...checkStructure(schema, object, "").shape];
}

/** The parts of metadata that rules and defaults read. */
function metadataFaults(object: UncheckedObject): FieldFault[] {
  const { metadata } = object;
  if (typeof metadata !== "object" || metadata === null || Array.isArray(metadata)) {
    return [invalid("metadata", typeof metadata, "must be an object")];
  }
  const { name, finalizers } = metadata as UncheckedObject;
  const faults: FieldFault[] = [];
  if (name !== undefined && typeof name !== "string")
    faults.push(invalid("metadata.name", typeof name, "must be a text"));
  if (finalizers !== undefined && finalizers !== null) {
    const texts = Array.isArray(finalizers) && finalizers.every((one) => typeof one === "string");
    if (!texts) faults.push(invalid("metadata.finalizers", typeof finalizers, "must be a list of texts"));
  }
  return faults;
}

/** Everything but metadata and status. */
function wishOf({ metadata: _metadata, status: _status, ...rest }: UncheckedObject): UncheckedObject {
  return rest;
}

function schemaOf(type: ResourceType<KubeObject>): SchemaNode {
  const crd = coilCrds.find(({ metadata }) => metadata.name === resourceName(type));
  const schema = crd?.spec.versions[0]?.schema.openAPIV3Schema;
  if (schema === undefined) throw new Error(`there is no CRD for ${type.kind}`);
  return schema;
}
