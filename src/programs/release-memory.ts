/** Pauses before the first releases, in milliseconds: after a usual start, and after one with large tables. */
const AFTER_START_MS = [5000, 25_000] as const;
/** Pause between later releases, in milliseconds. */
const PERIOD_MS = 600_000;

/**
 * Makes a long-running program return free memory of the C library to the kernel, after its start and then every ten minutes. A start
 * reads and compiles code, parses lists of objects and allocates buffers. The C library keeps most of that memory after it was freed:
 * 11 MiB of 45 in a service proxy with 1,000 Services (bench/footprint.ts). A release takes a few milliseconds. The timers keep no process
 * alive. `release` returns the memory; tests replace it.
 */
export function releaseMemoryAtRest(release: () => Promise<void> = releaseNow): void {
  const later = (ms: number, rest: readonly number[]): void => {
    const next = (): void => void release().then(() => later(rest[0] ?? PERIOD_MS, rest.slice(1)));
    setTimeout(next, ms).unref();
  };
  later(AFTER_START_MS[0], AFTER_START_MS.slice(1));
}

/** The module is loaded only here, because programs that end at once should not load it. */
async function releaseNow(): Promise<void> {
  const { releaseFreeMemory } = await import("#kernel/memory");
  releaseFreeMemory();
}
