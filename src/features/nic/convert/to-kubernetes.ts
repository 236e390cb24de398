import { isEqual } from "#base/collections";
import type { YamlPath } from "#base/yaml";
import { forbidden, invalid } from "#kube/crd";
import {
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  NICS_ANNOTATION,
  TENANT_LABEL,
  VM_ANNOTATION,
  VPC_ANNOTATION,
} from "#kube/nic";
import { annotationPath } from "../fields/annotation.ts";
import { defaultNics } from "../fields/defaults.ts";
import { readPodNics } from "../fields/pod.ts";
import { briefly, isRecord, readNics } from "../fields/read-nics.ts";
import { wishFaults } from "../fields/validate.ts";
import { readVm } from "../fields/vm.ts";
import { type Machine, readMachine } from "./machine.ts";
import { addFault, editMap, findKey, keysOf, type Plan } from "./plan.ts";
import type { Workload } from "./templates.ts";

type Unchecked = Readonly<Record<string, unknown>>;

/** The way in which the containers of virtual machines find their runtime: Virtlet's annotation and image, a RuntimeClass, or not at all. */
export type VmRuntime = { readonly kind: "none" | "virtlet" } | { readonly kind: "class"; readonly name: string };

const VIRTLET = "virtlet.cloud";
/** The annotation by which CRI proxies find the runtime of a pod. */
export const VIRTLET_ANNOTATIONS: Readonly<Record<string, string>> = { "kubernetes.io/target-runtime": VIRTLET };
const VPC_KEYS = [VPC_ANNOTATION, LEGACY_VPC_ANNOTATION];
const NICS_KEYS = [NICS_ANNOTATION, LEGACY_NICS_ANNOTATION];
const LABEL_VALUE = /^(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$/;

/** Plans how an object of Arktos becomes one of Kubernetes (docs/spec/vpc-nics.md#2.1). Without Arktos' fields there are no edits. */
export function planToKubernetes({ path, object, pods }: Workload, runtime: VmRuntime, plan: Plan): void {
  if (pods.path.length > path.length) planTenant(object, path, plan);
  const { template } = pods;
  planTenant(template, pods.path, plan);
  const spec = isRecord(template["spec"]) ? template["spec"] : {};
  const specPath = [...pods.path, "spec"];
  const annotations: Record<string, string> = {
    ...planWish(template, spec, { path: pods.path, specPath, plan }),
    ...planMachine(spec, specPath, { runtime, plan }),
  };
  const { metadata } = template;
  const present = isRecord(metadata) ? metadata["annotations"] : undefined;
  editMap(plan, [...pods.path, "metadata", "annotations"], present, annotations);
}

interface Places {
  readonly path: YamlPath;
  readonly specPath: YamlPath;
  readonly plan: Plan;
}

/** Cuts VPC and NICs of a spec, and returns them as annotations. Annotations that are there already are checked too. */
function planWish(template: Unchecked, spec: Unchecked, { path, specPath, plan }: Places): Record<string, string> {
  const present = annotationTexts(template);
  const own = readPodNics({ metadata: { annotations: present } }, { defaultVpc: "of the namespace" });
  if (own.kind === "faulty") {
    for (const fault of own.faults) addFault(plan, path, fault, placeOfAnnotation(fault.field, present));
  }
  const vpcField = findKey(spec, ["vpc"], { plan, path: specPath });
  const nicsField = findKey(spec, ["nics", "vnics"], { plan, path: specPath });
  for (const field of [vpcField, nicsField]) {
    if (field !== undefined) plan.edits.push({ path: [...specPath, field.key], remove: true });
  }
  const given = vpcField?.value ?? undefined;
  const { nics, faults, written } = readNics(nicsField?.value);
  if (given === undefined && nics.length === 0 && faults.length === 0) return {};
  const isText = given === undefined || typeof given === "string";
  if (!isText) {
    addFault(plan, specPath, invalid("vpc", briefly(given), "must be a VPC name or id"), [vpcField?.key ?? "vpc"]);
  }
  const key = { vpc: keyOf(present, VPC_KEYS), nics: keyOf(present, NICS_KEYS) };
  const ownVpc = key.vpc === undefined ? undefined : present[key.vpc];
  const wish = defaultNics({ vpc: isText ? (given ?? ownVpc) : "unreadable", nics });
  for (const fault of [...faults, ...wishFaults(wish)]) {
    const [root = "", ...keys] = keysOf(fault.field);
    const last = written.get(fault.field);
    const inner = last === undefined ? keys : [...keys.slice(0, -1), last];
    const at = root === "vpc" ? (vpcField?.key ?? "vpc") : (nicsField?.key ?? "nics");
    addFault(plan, specPath, fault, [at, ...inner]);
  }
  const differs = (annotation: string): void => {
    const fault = invalid(annotationPath(annotation), briefly(present[annotation]), "differs from the pod's spec");
    addFault(plan, path, fault, ["metadata", "annotations", annotation]);
  };
  if (key.vpc !== undefined && isText && given !== undefined && given !== ownVpc) differs(key.vpc);
  if (key.nics !== undefined && nics.length > 0 && own.kind === "wanted" && !isEqual(own.nics, wish.nics)) {
    differs(key.nics);
  }
  return {
    ...(key.vpc === undefined && typeof given === "string" ? { [VPC_ANNOTATION]: given } : {}),
    ...(key.nics === undefined && nics.length > 0 ? { [NICS_ANNOTATION]: JSON.stringify(nics) } : {}),
  };
}

/** The first of the keys that is there. */
function keyOf(annotations: Readonly<Record<string, string>>, keys: readonly string[]): string | undefined {
  return keys.find((key) => Object.hasOwn(annotations, key));
}

/** Annotations with texts; another value is a fault of the manifest that the API server will tell. */
function annotationTexts({ metadata }: Unchecked): Record<string, string> {
  const annotations = isRecord(metadata) && isRecord(metadata["annotations"]) ? metadata["annotations"] : {};
  return Object.fromEntries(
    Object.entries(annotations).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
}

/** The path of the annotation that a fault is about. */
function placeOfAnnotation(field: string, annotations: Readonly<Record<string, string>>): YamlPath {
  const named = /^metadata\.annotations\[(.*)\]/.exec(field)?.[1];
  if (named !== undefined) return ["metadata", "annotations", named];
  const key = keyOf(annotations, field.startsWith("vpc") ? VPC_KEYS : NICS_KEYS);
  return key === undefined ? ["metadata", "annotations"] : ["metadata", "annotations", key];
}

/** Makes the machine of a spec its only container, and returns the annotations for it. */
function planMachine(
  spec: Unchecked,
  specPath: YamlPath,
  { runtime, plan }: { readonly runtime: VmRuntime; readonly plan: Plan },
): Record<string, string> {
  const machine = readMachine(spec, specPath, plan);
  if (machine === undefined) return {};
  const { containers } = spec;
  if (Array.isArray(containers) && containers.length > 0) {
    addFault(plan, specPath, forbidden("containers", "a pod has either containers or a virtual machine"));
  }
  plan.edits.push(
    { path: [...specPath, machine.key], remove: true },
    { path: [...specPath, "containers"], value: [containerOf(machine, runtime)] },
  );
  if (runtime.kind === "class") {
    const { runtimeClassName = runtime.name } = spec;
    if (runtimeClassName !== runtime.name) {
      const why = `differs from the runtime class ${runtime.name} that was asked for`;
      addFault(plan, specPath, invalid("runtimeClassName", briefly(runtimeClassName), why));
    }
    plan.edits.push({ path: [...specPath, "runtimeClassName"], value: runtime.name });
  }
  const text = JSON.stringify(machine.whole);
  for (const fault of readVm(text).faults) addFault(plan, specPath, { ...fault, field: machine.key }, [machine.key]);
  return { [VM_ANNOTATION]: text, ...(runtime.kind === "virtlet" ? VIRTLET_ANNOTATIONS : {}) };
}

function containerOf({ container }: Machine, runtime: VmRuntime): Unchecked {
  if (runtime.kind !== "virtlet") return container;
  return { ...container, image: `${VIRTLET}/${container.image.replace(/^https?:\/\//, "")}` };
}

/** Makes the tenant in metadata a label. */
function planTenant(object: Unchecked, path: YamlPath, plan: Plan): void {
  const { metadata } = object;
  if (!isRecord(metadata) || metadata["tenant"] === undefined) return;
  const { tenant, labels } = metadata;
  const at = [...path, "metadata"];
  plan.edits.push({ path: [...at, "tenant"], remove: true });
  if (tenant === null || tenant === "") return;
  if (typeof tenant !== "string" || !LABEL_VALUE.test(tenant)) {
    addFault(
      plan,
      at,
      invalid(
        "tenant",
        briefly(tenant),
        "must be the value of a label: at most 63 letters, digits, dashes, dots and underscores",
      ),
    );
    return;
  }
  const present = isRecord(labels) ? labels[TENANT_LABEL] : undefined;
  if (present !== undefined && present !== tenant) {
    addFault(plan, at, invalid("tenant", tenant, `differs from label ${TENANT_LABEL}`));
  }
  editMap(plan, [...at, "labels"], labels, { [TENANT_LABEL]: tenant });
}
