/** Buckets of durations, in seconds: 1 ms, doubling to 16.384 s (docs/spec/service-proxy.md#1.7, "E"). */
export const DURATION_BUCKETS: readonly number[] = Array.from({ length: 15 }, (_, k) => 0.001 * 2 ** k);

/** Buckets of the time from a change to the kernel, seconds (docs/spec/service-proxy.md#1.7, "N"). */
export const PROGRAMMING_BUCKETS: readonly number[] = [
  0.25,
  0.5,
  ...steps(1, 59, 1),
  ...steps(60, 115, 5),
  ...steps(120, 300, 30),
];

function steps(from: number, to: number, by: number): number[] {
  return Array.from({ length: (to - from) / by + 1 }, (_, at) => from + at * by);
}
