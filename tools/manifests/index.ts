/**
 * The chart of `deploy/chart` rendered without Helm: the subset of Go templates that it is written in, its values and their schema.
 *
 * Owns: parsing and evaluation of templates, merging and checking of values. Does not know: which files are written of it.
 *
 * ```ts
 * const chart = readChart("deploy/chart");
 * const yaml = joinDocuments(renderChart(chart, { pods: { enabled: true } }).values());
 * ```
 */
export { type Chart, joinDocuments, type Release, readChart, readValues, renderChart, type Values } from "./chart.ts";
export { ChartError, type ChartErrorCode } from "./error.ts";
export type { Value } from "./functions.ts";
export { parseTemplate, renderParts } from "./template.ts";
export { jsonSchema, valuesSchema } from "./values.ts";
