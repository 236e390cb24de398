import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { parseYaml } from "#base/yaml";
import { ChartError } from "./error.ts";
import type { Value } from "./functions.ts";
import { type Block, type Definitions, parseTemplate, renderParts, type Template } from "./template.ts";
import { valuesSchema } from "./values.ts";

/** A chart's values: those of `values.yaml`, or such that replace some of them. */
export type Values = { readonly [key: string]: Value };

/** A chart that was read. */
export interface Chart {
  readonly version: string;
  readonly appVersion: string;
  readonly values: Values;
  /** The templates by file name in `templates`, in order. */
  readonly templates: ReadonlyMap<string, Block>;
  readonly defined: Definitions;
}

/** The release that objects are rendered for. */
export interface Release {
  readonly name: string;
  readonly namespace: string;
}

/** As `helm install isthmus deploy/chart --namespace kube-system` has it. */
const RELEASE: Release = { name: "isthmus", namespace: "kube-system" };

/** Reads a chart from its folder. Throws {@link ChartError}, and the error of a file that cannot be read. */
export function readChart(folder: string): Chart {
  const read = (file: string): string => readFileSync(join(folder, file), "utf8");
  const { version, appVersion } = parseYaml(read("Chart.yaml")).value as Readonly<
    Record<"version" | "appVersion", string>
  >;
  const files = readdirSync(join(folder, "templates")).sort();
  const all = new Map<string, Template>(files.map((file) => [file, parseTemplate(file, read(`templates/${file}`))]));
  const defined = new Map<string, Block>();
  for (const [file, template] of all) {
    for (const [name, parts] of template.defined) {
      if (defined.has(name)) throw new ChartError("syntax", `${file}:1: "${name}" is defined in two files`);
      defined.set(name, parts);
    }
  }
  const templates = new Map(
    Array.from(all, ([file, { parts }]) => [file, parts] as const).filter(([file]) => !file.startsWith("_")),
  );
  return { version, appVersion, values: readValues(read("values.yaml"), "values.yaml"), templates, defined };
}

/** Reads a values file. Throws {@link ChartError} (`values`) if it is no map, and `YamlError` for its syntax. */
export function readValues(text: string, file: string): Values {
  const value = parseYaml(text).value ?? {};
  if (typeof value !== "object" || Array.isArray(value)) throw new ChartError("values", `${file}: a map is due`);
  return value as Values;
}

/**
 * The text of each template of a chart, by file name, for values that replace its own. Maps are merged, lists are replaced, `null` takes a
 * value away, as with Helm. Throws {@link ChartError}.
 */
export function renderChart(chart: Chart, values: Values = {}, release: Release = RELEASE): Map<string, string> {
  const all = merge(chart.values, values);
  const { success, issues } = v.safeParse(valuesSchema, all);
  if (!success) {
    const faults = issues.map((issue) => `${v.getDotPath(issue) ?? "values"}: ${issue.message}`);
    throw new ChartError("values", faults.join("; "));
  }
  const dot = {
    Values: all,
    Release: { Name: release.name, Namespace: release.namespace, Service: "Helm" },
    Chart: { Name: "isthmus", Version: chart.version, AppVersion: chart.appVersion },
  };
  return new Map(Array.from(chart.templates, ([file, parts]) => [file, renderParts(parts, chart.defined, dot)]));
}

/** The documents of rendered templates as one text; templates and documents that have nothing are left out. */
export function joinDocuments(texts: Iterable<string>): string {
  const documents = Array.from(texts).flatMap((text) => text.split(/^---$/m));
  return documents.flatMap((one) => (/^[^#\s]/m.test(one) ? [`${one.trim()}\n`] : [])).join("---\n");
}

function merge(base: Values, over: Values): Values {
  const merged: Record<string, Value> = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const before = merged[key];
    if (value === null) delete merged[key];
    else if (isMap(before) && isMap(value)) merged[key] = merge(before, value);
    else merged[key] = value;
  }
  return merged;
}

function isMap(value: Value | undefined): value is Values {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
