import { ConfigError } from "./errors.ts";

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  // Go accepts both the micro sign (U+00B5) and the Greek letter (U+03BC).
  "\u00b5s": 1e-3,
  "\u03bcs": 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Parses a duration as Go's `time.ParseDuration` does, in milliseconds. Refuses negative ones. Throws {@link ConfigError}. */
export function parseDuration(text: string): number {
  if (text === "0") return 0;
  const parts = [...text.matchAll(/(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/gy)];
  if (parts.length === 0 || parts.map((part) => part[0]).join("") !== text) {
    throw new ConfigError("invalid-value", [`"${text}" is not a duration; examples are 300ms, 10s and 1h30m`]);
  }
  return parts.reduce((sum, part) => sum + Number(part[1]) * (UNIT_MS[part[2] ?? ""] ?? 0), 0);
}

/** Formats milliseconds as Go prints a duration: `1h0m0s`, `5m0s`, `10s`, `300ms`, `0s`. */
export function formatDuration(ms: number): string {
  if (ms > 0 && ms < 1000) return `${ms}ms`;
  const seconds = ms / 1000;
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const rest = `${Number((seconds % 60).toFixed(3))}s`;
  if (hours > 0) return `${hours}h${minutes}m${rest}`;
  return minutes > 0 ? `${minutes}m${rest}` : rest;
}
