/**
 * A shipped program that is killed after the n-th thing that it writes into the kernel.
 *
 * Owns: the file by which it is told so. Does not know: which program, and what it writes.
 *
 * ```ts
 * const writes = new KernelWrites(folder);
 * start(argv, { env: writes.env });
 * writes.watch({ killAfter: 3 });
 * ```
 */
import { chmodSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ISTHMUS } from "#test/lab";

/** The order to the program: the number of the watch, and the write after which it kills itself; without that it only counts. */
export interface WritesOrder {
  readonly run: number;
  readonly killAfter?: number | undefined;
}

export class KernelWrites {
  readonly #file: string;
  readonly #node: string;
  #run = 0;

  /** Files are made in `folder`, whose owner removes it. */
  constructor(folder: string) {
    this.#file = join(folder, "writes");
    this.#node = join(folder, "node-that-counts");
    const hook = join(import.meta.dirname, "writes-hook.ts");
    writeFileSync(this.#node, `#!/bin/sh\nexec '${process.execPath}' '--import=${hook}' "$@"\n`);
    chmodSync(this.#node, 0o755);
  }

  /** For the program that is watched, whose Node loads the hook: the launcher takes no NODE_OPTIONS. */
  get env(): Readonly<Record<string, string>> {
    return {
      ISTHMUS_NODE: this.#node,
      ISTHMUS_WRITES_FILE: this.#file,
      ISTHMUS_WRITES_KOFFI: join(ISTHMUS, "../node_modules/koffi/index.js"),
    };
  }

  /** Counts from now on. */
  watch({ killAfter }: Pick<WritesOrder, "killAfter"> = {}): void {
    this.#run += 1;
    // By a rename, because the program may be writing just now and read the file.
    const next = `${this.#file}.next`;
    writeFileSync(next, JSON.stringify({ run: this.#run, killAfter } satisfies WritesOrder));
    renameSync(next, this.#file);
  }

  /** Ends the watch; the writes since its begin. */
  end(): readonly string[] {
    rmSync(this.#file, { force: true });
    const log = `${this.#file}.${this.#run}`;
    return existsSync(log) ? readFileSync(log, "utf8").trimEnd().split("\n") : [];
  }
}
