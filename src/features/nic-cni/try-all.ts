/** Runs all steps, also after failures. Throws the only failure, or all of them as one `AggregateError`. */
export async function tryAll(what: string, steps: readonly (() => Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1) throw new AggregateError(failures, `${what} could not be removed whole`);
}
