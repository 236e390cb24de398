import { ExpectedError } from "#base/errors";
import type { DialFailure } from "#base/uplink-model";

/**
 * `not-ready`: the state of the uplinks is not known yet. `denied`: refused by policy. All others: the destination cannot be reached
 * (docs/spec/uplink-proxy.md#5.4).
 */
export type SelectErrorCode = "not-ready" | "no-uplink" | "cost-limit" | "dial-failed" | "timeout" | "dns" | "denied";

/** An attempt over one uplink that failed. */
export interface AttemptFailure {
  readonly uplink: string;
  readonly ifName: string;
  readonly cost: number;
  /** The source address as text; empty if the attempt failed before it had a source. */
  readonly source: string;
  readonly failure: DialFailure;
  readonly text: string;
}

/** No connection could be made. The message has the reason, without the program's name. */
export class SelectError extends ExpectedError<SelectErrorCode> {
  override readonly name = "SelectError";
  readonly failures: readonly AttemptFailure[];

  constructor(code: SelectErrorCode, message: string, failures: readonly AttemptFailure[] = []) {
    super(code, message);
    this.failures = failures;
  }
}

/** `eth0/192.0.2.10(cost=0): connection timed out` (docs/spec/uplink-proxy.md#5.4). */
export function attemptText({ ifName, source, cost, text }: AttemptFailure): string {
  return `${ifName}/${source}(cost=${cost}): ${text}`;
}

/** The error of a request whose attempts have all failed. */
export function allFailed(target: string, failures: readonly AttemptFailure[]): SelectError {
  const text = `all attempts to ${target} failed; ${failures.map(attemptText).join("; ")}`;
  const isAll = (kind: DialFailure): boolean =>
    failures.length > 0 && failures.every(({ failure }) => failure === kind);
  const code = isAll("timeout") ? "timeout" : isAll("dns") ? "dns" : "dial-failed";
  return new SelectError(code, text, failures);
}
