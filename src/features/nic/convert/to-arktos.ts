import type { YamlPath } from "#base/yaml";
import { forbidden } from "#kube/crd";
import {
  CLAIM_ANNOTATION,
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  NIC_STATUS_ANNOTATION,
  NICS_ANNOTATION,
  TENANT_LABEL,
  VM_ANNOTATION,
  VPC_ANNOTATION,
} from "#kube/nic";
import { readAnnotation } from "../fields/annotation.ts";
import { readPodNics } from "../fields/pod.ts";
import { isRecord, readNics } from "../fields/read-nics.ts";
import { readVm } from "../fields/vm.ts";
import { restoreMachine } from "./machine.ts";
import { addFault, editMap, type Plan } from "./plan.ts";
import type { Workload } from "./templates.ts";
import { VIRTLET_ANNOTATIONS } from "./to-kubernetes.ts";

type Unchecked = Readonly<Record<string, unknown>>;

/** Every annotation of ours, and those that the conversion to Kubernetes adds. */
const OURS = [
  VPC_ANNOTATION,
  NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  LEGACY_NICS_ANNOTATION,
  NIC_STATUS_ANNOTATION,
  CLAIM_ANNOTATION,
];

/** Plans how an object with our annotations becomes one of Arktos. Without our annotations there are no edits. */
export function planToArktos({ path, object, pods }: Workload, plan: Plan): void {
  if (pods.path.length > path.length) planTenant(object, path, plan);
  const { template } = pods;
  planTenant(template, pods.path, plan);
  const { metadata } = template;
  const annotations = isRecord(metadata) && isRecord(metadata["annotations"]) ? metadata["annotations"] : {};
  const text = (...keys: readonly string[]): string | undefined =>
    keys.map((key) => annotations[key]).find((value) => typeof value === "string");
  const texts = Object.fromEntries(
    Object.entries(annotations).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );
  const wish = readPodNics({ metadata: { annotations: texts } }, { defaultVpc: "of the namespace" });
  if (wish.kind === "faulty") {
    for (const fault of wish.faults) addFault(plan, pods.path, fault, ["metadata", "annotations"]);
    return;
  }
  const specPath = [...pods.path, "spec"];
  const vpc = text(VPC_ANNOTATION, LEGACY_VPC_ANNOTATION);
  if (vpc !== undefined) plan.edits.push({ path: [...specPath, "vpc"], value: vpc });
  const [key = NICS_ANNOTATION] = [NICS_ANNOTATION, LEGACY_NICS_ANNOTATION].filter((one) => text(one) !== undefined);
  const read = readAnnotation(key, text(key) ?? "[]");
  const { nics } = readNics("value" in read ? read.value : []);
  if (nics.length > 0) plan.edits.push({ path: [...specPath, "nics"], value: nics });
  const gone = [...OURS, ...planMachine(text(VM_ANNOTATION), template, { specPath, plan, annotations })];
  const removed = Object.fromEntries(gone.map((one) => [one, undefined]));
  editMap(plan, [...pods.path, "metadata", "annotations"], annotations, removed);
}

/** Makes the container of a machine a machine again; returns the annotations that go with it. */
function planMachine(
  annotation: string | undefined,
  template: Unchecked,
  to: { readonly specPath: YamlPath; readonly plan: Plan; readonly annotations: Unchecked },
): readonly string[] {
  const { vm } = readVm(annotation);
  if (vm === undefined) return [];
  const { specPath, plan, annotations } = to;
  const spec = isRecord(template["spec"]) ? template["spec"] : {};
  const { containers } = spec;
  const [only, ...others]: readonly unknown[] = Array.isArray(containers) ? containers : [];
  if (others.length > 0 || (isRecord(only) && only["name"] !== vm.rest["name"])) {
    const why = `a pod with annotation ${VM_ANNOTATION} has only the container of its virtual machine`;
    addFault(plan, specPath, forbidden("containers", why));
  }
  const flavor = vm.flavor === undefined ? {} : { flavor: vm.flavor };
  plan.edits.push({ path: [...specPath, "VirtualMachine"], value: restoreMachine({ ...vm.rest, ...flavor }) });
  if (only !== undefined) plan.edits.push({ path: [...specPath, "containers"], remove: true });
  const ofRuntime = Object.entries(VIRTLET_ANNOTATIONS).filter(([key, value]) => annotations[key] === value);
  return [VM_ANNOTATION, ...ofRuntime.map(([key]) => key)];
}

/** Makes the label of a tenant the tenant in metadata. */
function planTenant({ metadata }: Unchecked, path: YamlPath, plan: Plan): void {
  const labels = isRecord(metadata) ? metadata["labels"] : undefined;
  const tenant = isRecord(labels) ? labels[TENANT_LABEL] : undefined;
  if (typeof tenant !== "string") return;
  plan.edits.push({ path: [...path, "metadata", "tenant"], value: tenant });
  editMap(plan, [...path, "metadata", "labels"], labels, { [TENANT_LABEL]: undefined });
}
