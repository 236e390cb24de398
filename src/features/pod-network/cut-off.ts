import type { Link, LinkPort } from "#kernel/link";
import { cutOffGroup, isMarkedCutOff, joinedGroup } from "./link-groups.ts";

/** A link to set down, or to set up again, as plain data. */
export interface CutOffStep {
  readonly op: "cut" | "join";
  readonly link: Link;
  readonly group: number;
}

/**
 * Pure: the links to cut off, and the links to connect again. `cutOff` is `undefined` while it is not known whether a link must be cut off:
 * that link is not changed. A link that is cut off is down and has lost its routes, so the pod neither sends from its address nor answers
 * on it. The group distinguishes it from a link that another program set down, also after a restart.
 */
export function planCutOff(
  wanted: Iterable<{ readonly link: Link; readonly cutOff: boolean | undefined }>,
): CutOffStep[] {
  const steps: CutOffStep[] = [];
  for (const { link, cutOff } of wanted) {
    const marked = isMarkedCutOff(link);
    const isWanted = cutOff ?? marked;
    if (isWanted && !(marked && !link.up)) {
      steps.push({ op: "cut", link, group: marked ? link.group : cutOffGroup(link) });
    } else if (!isWanted && marked) steps.push({ op: "join", link, group: joinedGroup(link) });
  }
  return steps;
}

/** Writes one step, in one request. The next repair restores the routes of a link that was connected again. Throws `KernelError`. */
export function applyCutOff(links: Pick<LinkPort, "set">, { op, link, group }: CutOffStep): void {
  links.set(link.index, { up: op === "join", group });
}
