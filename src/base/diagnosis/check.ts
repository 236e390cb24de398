import { ExpectedError } from "#base/errors";
import { printable } from "#base/text";

/** A value that was read, or the reason why it could not be read. */
export type Fact<T> = { readonly value: T } | { readonly fault: string };

/** Reads something for a diagnosis: an expected error becomes a {@link Fact} with a fault. Rejects with bugs and with the signal's reason. */
export async function readFact<T>(read: () => Promise<T>): Promise<Fact<T>> {
  try {
    return { value: await read() };
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    return { fault: error.message };
  }
}

/**
 * One result of a diagnosis. `wrong`: pods have no network by it, or will have none. `warning`: it may be so, or something is missing that is wanted.
 * `unknown`: it could not be looked at.
 */
export interface DoctorCheck {
  readonly state: "ok" | "warning" | "wrong" | "unknown";
  /** The checked object, such as `provider neutron` or `node node-1`. */
  readonly subject: string;
  readonly text: string;
  /** The remedy. */
  readonly remedy?: string;
}

/** Checks of one subject. */
export function checksOf(subject: string) {
  const check =
    (state: DoctorCheck["state"]) =>
    (text: string, remedy?: string): DoctorCheck => ({
      state,
      subject,
      text,
      ...(remedy === undefined ? {} : { remedy }),
    });
  return { ok: check("ok"), warning: check("warning"), wrong: check("wrong"), unknown: check("unknown") };
}

/** The result for people: a line for each check, a remedy below it, and a sum at the end. Texts of others stay on their line. Pure. */
export function doctorText(all: readonly DoctorCheck[]): string {
  const checks = all.map((check) => ({
    ...check,
    subject: printable(check.subject),
    text: printable(check.text),
    ...(check.remedy === undefined ? {} : { remedy: printable(check.remedy) }),
  }));
  const width = Math.max(0, ...checks.map(({ subject }) => subject.length));
  const lines = checks.flatMap(({ state, subject, text, remedy }) => [
    `${state.padEnd(7)}  ${subject.padEnd(width)}  ${text}`,
    ...(remedy === undefined ? [] : [`${" ".repeat(9)}${" ".repeat(width)}  remedy: ${remedy}`]),
  ]);
  const count = (state: DoctorCheck["state"]): number => checks.filter((one) => one.state === state).length;
  const sum = `${checks.length} checks: ${count("ok")} ok, ${count("wrong")} wrong, ${count("warning")} warnings, ${count("unknown")} unknown`;
  return `${[...lines, sum].join("\n")}\n`;
}
