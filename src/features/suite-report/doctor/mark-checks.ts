import { foreignRoutes, type MarkFacts, sharedMarks } from "../marks.ts";
import { type FaultCheck, judged } from "./faults.ts";

/** The marks of the programs of a node, by their estates. */
export interface NodeMarks extends Pick<MarkFacts, "inForce" | "routes"> {
  /** Estates, and claims of them, that do not count, one line each. */
  readonly refused: readonly string[];
}

/** Judges the marks of a node; `undefined`: no program has an estate here. Pure. */
export function markChecks(marks: NodeMarks | undefined): readonly FaultCheck[] {
  if (marks === undefined) return [];
  const { ok, wrong, warning } = judged("marks", "numbers and names in the kernel");
  const found = [
    ...sharedMarks(marks.inForce).map((text) =>
      wrong(text, "give one of the two programs other numbers: docs/reference has the flags of each"),
    ),
    ...foreignRoutes(marks).map((text) => warning(text, "move them to a table of their own, or remove them")),
    ...marks.refused.map((text) => warning(text, "find out who has written it: only the program itself writes there")),
  ];
  if (found.length > 0) return found;
  const programs = marks.inForce.map(({ program }) => program).join(", ");
  return [ok(`those of ${programs} are theirs alone`)];
}
