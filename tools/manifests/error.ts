import { ExpectedError } from "#base/errors";

/**
 * - `syntax`: a template is not of the subset of Go templates that is read here.
 * - `render`: a template asks for a value that is not there, or of another type; or it calls `fail`.
 * - `values`: values are not those of the chart.
 */
export type ChartErrorCode = "syntax" | "render" | "values";

/** A chart cannot be rendered. The message of a template's fault begins with its file and line. */
export class ChartError extends ExpectedError<ChartErrorCode> {
  override readonly name = "ChartError";
}
