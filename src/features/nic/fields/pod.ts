import { isEqual } from "#base/collections";
import { type FieldFault, invalid } from "#kube/crd";
import {
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  type NamedNic,
  NICS_ANNOTATION,
  type Nic,
  VM_ANNOTATION,
  VPC_ANNOTATION,
} from "#kube/nic";
import { annotationPath, readAnnotation } from "./annotation.ts";
import { defaultNics } from "./defaults.ts";
import { briefly, readNics } from "./read-nics.ts";
import { wishFaults } from "./validate.ts";
import { readVm, type VmWish } from "./vm.ts";

/** The part of a Pod that is read. */
export interface PodFields {
  readonly metadata?: { readonly annotations?: Readonly<Record<string, string>> | undefined } | undefined;
  readonly spec?:
    | {
        readonly hostNetwork?: boolean | undefined;
        readonly nodeName?: string | undefined;
        readonly schedulingGates?: readonly { readonly name: string }[] | undefined;
      }
    | undefined;
}

/** NICs of a pod that can have them. */
export interface WantedNics {
  readonly kind: "wanted";
  readonly vpc: string;
  /** With all defaults. */
  readonly nics: readonly NamedNic[];
  /** True if the user wrote every name, and did not leave it to the defaults. */
  readonly allNamed: boolean;
  readonly vm: VmWish | undefined;
}

/**
 * The NICs that a pod requests. `none`: it is not ours. `host-network`: it names a VPC and has the network of its node, so it gets no ports
 * (event `HostNetworkIgnored`). `faulty`: it cannot have what it asks for.
 */
export type PodNics =
  | WantedNics
  | { readonly kind: "none" }
  | { readonly kind: "host-network" }
  | { readonly kind: "faulty"; readonly faults: readonly FieldFault[] };

/**
 * Reads what a pod asks for in its annotations, ours or those of Arktos, with defaults and checks (docs/spec/vpc-nics.md#1, #2).
 * `defaultVpc` is the annotation of its namespace. Pure; the annotations may have any text.
 */
export function readPodNics(
  pod: PodFields,
  { defaultVpc }: { readonly defaultVpc?: string | undefined } = {},
): PodNics {
  const annotations = pod.metadata?.annotations ?? {};
  const texts = [VPC_ANNOTATION, NICS_ANNOTATION, LEGACY_VPC_ANNOTATION, LEGACY_NICS_ANNOTATION].map((key) =>
    annotationOf(annotations, key),
  );
  if (texts.every((text) => text === undefined)) return { kind: "none" };
  if (pod.spec?.hostNetwork === true) return { kind: "host-network" };
  const [ownVpc, ownNics, legacyVpc, legacyNics] = texts;
  const faults: FieldFault[] = [];
  const own = readList(NICS_ANNOTATION, ownNics, faults);
  const legacy = readList(LEGACY_NICS_ANNOTATION, legacyNics, faults);
  const wish = defaultNics({ vpc: ownVpc ?? legacyVpc, nics: own ?? legacy }, { defaultVpc });
  faults.push(...wishFaults(wish));
  if (ownVpc !== undefined && legacyVpc !== undefined && ownVpc !== legacyVpc) {
    faults.push(differs(LEGACY_VPC_ANNOTATION, legacyVpc, VPC_ANNOTATION));
  }
  if (own !== undefined && legacy !== undefined) {
    const [mine, theirs] = [own, legacy].map((nics) => defaultNics({ vpc: "any", nics }).nics);
    if (!isEqual(mine, theirs)) faults.push(differs(LEGACY_NICS_ANNOTATION, legacyNics, NICS_ANNOTATION));
  }
  const { vm, faults: vmFaults } = readVm(annotationOf(annotations, VM_ANNOTATION));
  faults.push(...vmFaults);
  if (faults.length > 0) return { kind: "faulty", faults };
  // An empty list of NICs without a VPC.
  if (wish.vpc === undefined) return { kind: "none" };
  const allNamed = (own ?? legacy ?? []).every(({ name }) => name !== undefined);
  return { kind: "wanted", vpc: wish.vpc, nics: wish.nics, allNamed, vm };
}

/** Annotations are of the user, so their names may be those of methods of every object. */
function annotationOf(annotations: Readonly<Record<string, string>>, key: string): string | undefined {
  return Object.hasOwn(annotations, key) ? annotations[key] : undefined;
}

function readList(key: string, text: string | undefined, faults: FieldFault[]): readonly Nic[] | undefined {
  if (text === undefined) return undefined;
  const read = readAnnotation(key, text);
  if ("faults" in read) {
    faults.push(...read.faults);
    return undefined;
  }
  const { nics, faults: found } = readNics(read.value);
  faults.push(...found);
  return nics;
}

function differs(key: string, text: string | undefined, other: string): FieldFault {
  return invalid(annotationPath(key), briefly(text), `differs from annotation ${other}`);
}
