import { applyEdits, parseYamlSources, YamlError, type YamlPath, type YamlSource } from "#base/yaml";
import { invalid } from "#kube/crd";
import { briefly, isRecord } from "../fields/read-nics.ts";
import { addFault, type Plan } from "./plan.ts";
import { type Workload, workloadsOf } from "./templates.ts";
import { planToArktos } from "./to-arktos.ts";
import { planToKubernetes, type VmRuntime } from "./to-kubernetes.ts";

/** `kubernetes`: fields of Arktos become annotations. `arktos`: the other way. */
export const CONVERT_TO = ["kubernetes", "arktos"] as const;

/** Settings of {@link convertManifests}. */
export interface ConvertOptions {
  readonly to: (typeof CONVERT_TO)[number];
  readonly output: "yaml" | "json";
  readonly vmRuntime: VmRuntime;
}

/** One fault of a manifest. */
export interface ConvertFault {
  /** The number of the document, from 1. */
  readonly document: number;
  /** The line in the whole text, from 1. */
  readonly line: number;
  /** The object, such as `Pod/nginx`; empty if the document cannot be read. */
  readonly object: string;
  /** The path of the field; empty for the document as a whole. */
  readonly field: string;
  readonly message: string;
}

/** The converted text and the number of objects that were changed, or all faults. */
export type Conversion =
  | { readonly ok: true; readonly text: string; readonly changed: number }
  | { readonly ok: false; readonly faults: readonly ConvertFault[] };

/**
 * Converts manifests (docs/spec/vpc-nics.md#2.1). A document in which nothing is changed passes through byte for byte. Output in JSON is one
 * JSON value for each document. Pure; any text may be given.
 */
export function convertManifests(text: string, options: ConvertOptions): Conversion {
  const faults: ConvertFault[] = [];
  const parts: string[] = [];
  let changed = 0;
  for (const [at, source] of parseYamlSources(text, { aliases: true, tabs: true }).entries()) {
    const { document } = source;
    if (document instanceof YamlError) {
      for (const { line, message } of document.faults) {
        faults.push({ document: at + 1, line, object: "", field: "", message });
      }
      continue;
    }
    const whole: Plan = { edits: [], faults: [] };
    for (const workload of workloadsOf(document.value)) {
      const plan: Plan = { edits: whole.edits, faults: [] };
      const before = plan.edits.length;
      if (options.to === "arktos") planToArktos(workload, plan);
      else planToKubernetes(workload, options.vmRuntime, plan);
      if (plan.edits.length > before) {
        changed += 1;
        checkShape(workload, plan);
      }
      for (const { field, message, at: place } of plan.faults) {
        faults.push({ document: at + 1, line: document.lineOf(place), object: workload.title, field, message });
      }
    }
    // The plan is not applied to a document with faults, since nothing is printed then.
    if (faults.length === 0) parts.push(render(source, document.value, { plan: whole, output: options.output }));
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, text: parts.join(""), changed };
}

/** The parts that edits lead through must be objects, or absent. */
function checkShape({ path, object, pods: { path: podPath, template } }: Workload, plan: Plan): void {
  const parts: [YamlPath, unknown, string][] = [[path, object["metadata"], "metadata"]];
  if (podPath.length > path.length) parts.push([podPath, template["metadata"], "metadata"]);
  parts.push([podPath, template["spec"], "spec"]);
  for (const [at, value, name] of [...parts]) {
    if (name !== "metadata" || !isRecord(value)) continue;
    for (const map of ["annotations", "labels"]) parts.push([at, value[map], `metadata.${map}`]);
  }
  for (const [at, value, name] of parts) {
    if (value === undefined || value === null || isRecord(value)) continue;
    addFault(plan, at, invalid(name, briefly(value), "must be an object"));
  }
}

function render(
  source: YamlSource,
  value: unknown,
  { plan, output }: { readonly plan: Plan; readonly output: ConvertOptions["output"] },
): string {
  const isUntouched = plan.edits.length === 0;
  if (output === "yaml") return isUntouched ? source.text : source.edited(plan.edits);
  if (value === null) return "";
  if (isUntouched && isJson(source.text)) return source.text.endsWith("\n") ? source.text : `${source.text}\n`;
  return `${JSON.stringify(applyEdits(value, plan.edits), null, 2)}\n`;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    // JSON.parse throws nothing but a SyntaxError.
    return false;
  }
}
