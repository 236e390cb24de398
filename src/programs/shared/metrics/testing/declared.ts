import { Registry } from "#base/metrics";
import { findProgram } from "../../../programs.ts";

/** A metric as a program declares it. */
export interface DeclaredMetric {
  readonly name: string;
  readonly type: string;
  readonly labelNames: readonly string[];
}

/** The metrics that a program declares; none for a name that is no program's. */
export async function declaredMetrics(program: string): Promise<readonly DeclaredMetric[]> {
  const registry = new Registry();
  for (const declare of (await findProgram(program)?.load())?.metrics ?? []) declare(registry);
  // The library's types lack what its metrics have at run time.
  return registry.getMetricsAsArray() as unknown as readonly DeclaredMetric[];
}
