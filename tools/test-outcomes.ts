/**
 * Results of a test run by file, so that a file that runs again replaces its first results; and what files mean that passed only alone.
 *
 * Does not know: how files are run.
 */

/** Results of one file. */
export interface FileOutcome {
  readonly passed: number;
  readonly skipped: number;
  /** Names of failed tests with the reason of each, in the order of the run. */
  readonly failures: readonly string[];
}

export type TestResult = { readonly kind: "passed" | "skipped" } | { readonly kind: "failed"; readonly text: string };

/** The number of files of one run that may pass only alone without failing the run. */
export const FORGIVEN_FILES = 3;

/** The number of failed files that run again. Where more have failed, the machine's load is not the reason. */
export const RERUN_FILES = 10;

const NOTHING: FileOutcome = { passed: 0, skipped: 0, failures: [] };

/** Results by file; files are named from the root of the checkout. */
export class Outcomes {
  readonly #files = new Map<string, FileOutcome>();

  add(file: string, results: readonly TestResult[]): void {
    const { passed, skipped, failures } = this.#files.get(file) ?? NOTHING;
    this.#files.set(file, {
      passed: passed + results.filter(({ kind }) => kind === "passed").length,
      skipped: skipped + results.filter(({ kind }) => kind === "skipped").length,
      failures: [...failures, ...results.flatMap((one) => (one.kind === "failed" ? [one.text] : []))],
    });
  }

  /** Removes the results of a file, which is about to run again, and returns its failures. */
  forget(file: string): readonly string[] {
    const { failures } = this.#files.get(file) ?? NOTHING;
    this.#files.delete(file);
    return failures;
  }

  /** Puts failures of an earlier run back where the file has passed no test since: all of them were skipped, or none ran. */
  restoreUnlessPassed(file: string, failures: readonly string[]): void {
    const { passed, failures: again } = this.#files.get(file) ?? NOTHING;
    if (passed + again.length > 0) return;
    this.add(
      file,
      failures.map((text) => ({ kind: "failed", text })),
    );
  }

  /** Files with a failure, in the order of their first results. */
  get failed(): readonly string[] {
    return [...this.#files].filter(([, { failures }]) => failures.length > 0).map(([file]) => file);
  }

  /** The results of all files together; each failure names its file. */
  get all(): FileOutcome {
    const all = [...this.#files];
    return {
      passed: all.reduce((sum, [, { passed }]) => sum + passed, 0),
      skipped: all.reduce((sum, [, { skipped }]) => sum + skipped, 0),
      failures: all.flatMap(([file, { failures }]) => failures.map((text) => `${file}: ${text}`)),
    };
  }
}

/** The files that `docs/flaky.md` lists: the first column of its table. */
export function listedFiles(page: string): ReadonlySet<string> {
  return new Set(Array.from(page.matchAll(/^\| `([^`]+\.test\.ts)` \|/gm), ([, file = ""]) => file));
}

/**
 * Pure: the faults of a run in which these files failed beside others and passed alone; none if they are forgiven. `listed`: files of
 * `docs/flaky.md`, which are never forgiven. `isCI`: whether this is the run that decides about a change; elsewhere none is forgiven.
 */
export function faultsOf(
  passedAlone: readonly string[],
  { listed, isCI }: { readonly listed: ReadonlySet<string>; readonly isCI: boolean },
): readonly string[] {
  const again = passedAlone.filter((file) => listed.has(file));
  if (again.length > 0)
    return again.map(
      (file) => `${file} passed only alone, and docs/flaky.md lists it: its cause has to be removed first`,
    );
  if (passedAlone.length === 0 || (isCI && passedAlone.length <= FORGIVEN_FILES)) return [];
  const why = isCI
    ? `${passedAlone.length} files passed only alone, and at most ${FORGIVEN_FILES} are forgiven`
    : "it passed only alone";
  return passedAlone.map((file) => `${file}: ${why}`);
}

/** The failed tests in a report of node:test, as `spec` prints it: below "failing tests:", each with the place where it is defined. */
export function failuresOfGuest(report: string): readonly { readonly file: string; readonly text: string }[] {
  return Array.from(report.matchAll(/^test at (\S+\.test\.ts):\d+:\d+\n✖ (.*)$/gm), ([, file = "", text = ""]) => ({
    file,
    text,
  }));
}
