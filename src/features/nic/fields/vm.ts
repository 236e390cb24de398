import { type FieldFault, invalid } from "#kube/crd";
import { VM_ANNOTATION } from "#kube/nic";
import { annotationPath, readAnnotation } from "./annotation.ts";
import { briefly, isRecord } from "./read-nics.ts";

/** The machine of a pod: its flavor, and everything else as the user wrote it. */
export interface VmWish {
  readonly flavor?: string;
  readonly rest: Readonly<Record<string, unknown>>;
}

/** Reads the annotation of a machine; `undefined` without one. Pure; any text may be given. */
export function readVm(text: string | undefined): {
  readonly vm: VmWish | undefined;
  readonly faults: readonly FieldFault[];
} {
  if (text === undefined) return { vm: undefined, faults: [] };
  const read = readAnnotation(VM_ANNOTATION, text);
  if ("faults" in read) return { vm: undefined, faults: read.faults };
  const field = annotationPath(VM_ANNOTATION);
  if (!isRecord(read.value)) {
    return { vm: undefined, faults: [invalid(field, briefly(read.value), "must be an object")] };
  }
  const { flavor, ...rest } = read.value;
  if (flavor === undefined || flavor === null) return { vm: { rest }, faults: [] };
  if (typeof flavor !== "string" || flavor === "" || flavor.length > 255) {
    return { vm: { rest }, faults: [invalid(`${field}.flavor`, briefly(flavor), "must be the name of a flavor")] };
  }
  return { vm: { flavor, rest }, faults: [] };
}
